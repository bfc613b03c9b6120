"""Zip: samples of several pipes side by side, until the shortest or the longest of them ends."""

import builtins
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Indexed, Op
from headrace.ops.ahead import ahead_in
from headrace.ops.counts import from_all


@dataclass(frozen=True, slots=True)
class Zip(Op[Any, tuple[Any, ...]]):
    """Tuples of one sample from each input, until the shortest ends."""

    quiet = True
    pairs = True
    length = from_all(min)

    def flow(self, *inputs: object) -> Iterator[tuple[Any, ...]]:
        yield from builtins.zip(*inputs[:-1], strict=False)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        fetches = [i.get for i in inputs]
        found = Indexed(min(i.length for i in inputs), lambda position: tuple([fetch(position) for fetch in fetches]))
        found.ahead = ahead_in(inputs, lambda position: [(inner, position) for inner in inputs])
        return found


@dataclass(frozen=True, slots=True)
class ZipLongest(Op[Any, tuple[Any, ...]]):
    """Tuples of one sample from each input; `fill_value` stands for what an ended one cannot give."""

    fill_value: Any = None
    quiet = True
    pairs = True
    length = from_all(max)

    def flow(self, *inputs: Any) -> Iterator[tuple[Any, ...]]:
        yield from itertools.zip_longest(*inputs[:-1], fillvalue=self.fill_value)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        fill = self.fill_value

        def get(position: int) -> tuple[Any, ...]:
            return tuple([i.get(position) if position < i.length else fill for i in inputs])

        found = Indexed(max(i.length for i in inputs), get)
        found.ahead = ahead_in(inputs, lambda position: [(i, position) for i in inputs if position < i.length])
        return found
