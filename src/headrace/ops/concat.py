"""Concat: one pipe after the other."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from headrace.op import Here, Indexed, Op

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Concat(Op[T, T]):
    """All samples of the first input, then of the second, and so on."""

    quiet = True

    def flow(self, *inputs: Any) -> Iterator[T]:
        for samples in inputs[:-1]:
            yield from samples

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        ends = list(accumulate(i.length for i in inputs))
        starts = [0, *ends[:-1]]
        fetches = [i.get for i in inputs]

        def get(position: int) -> T:
            part = bisect_right(ends, position)
            return fetches[part](position - starts[part])  # type: ignore[no-any-return]

        return Indexed(ends[-1], get)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        known = [n for n in inputs if n is not None]
        return sum(known) if len(known) == len(inputs) else None
