"""Zip: samples of several pipes side by side."""

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Indexed, Op


@dataclass(frozen=True, slots=True)
class Zip(Op[Any, tuple[Any, ...]]):
    """Tuples of one sample from each input, until the shortest ends."""

    quiet = True
    pairs = True

    def flow(self, *inputs: object) -> Iterator[tuple[Any, ...]]:
        yield from builtins.zip(*inputs[:-1], strict=False)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        fetches = [i.get for i in inputs]
        return Indexed(min(i.length for i in inputs), lambda position: tuple([fetch(position) for fetch in fetches]))

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        known = [n for n in inputs if n is not None]
        return min(known) if len(known) == len(inputs) else None
