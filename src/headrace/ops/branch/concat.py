"""Concat: one pipe after the other."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from headrace.op import Here, Indexed, Op, Positions
from headrace.ops.ahead import ahead_in
from headrace.ops.counts import from_all

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Concat(Op[T, T]):
    """All samples of the first input, then of the second, and so on."""

    quiet = True
    hands_on = True
    length = from_all(sum)

    def flow(self, *inputs: Any) -> Iterator[T]:
        for samples in inputs[:-1]:
            yield from samples

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        ends = list(accumulate(i.length for i in inputs))
        starts = [0, *ends[:-1]]

        def find(position: int) -> tuple[Indexed, int]:
            part = bisect_right(ends, position)
            return inputs[part], position - starts[part]

        def get(position: int) -> T:
            inner, place = find(position)
            return inner.get(place)  # type: ignore[no-any-return]

        def take(positions: Positions, names: tuple[str, ...] | None) -> Any:
            """Many rows at once: those of each input together, then each at its place."""
            import numpy as np

            from headrace.tables.merge import merge

            owners = np.searchsorted(ends, positions, side="right")
            return merge(owners, lambda part, places: takes[part](positions[places] - starts[part], names))

        takes = [i.take for i in inputs if i.take is not None]
        found = Indexed(ends[-1], get, take if len(takes) == len(inputs) else None)
        found.ahead = ahead_in(inputs, lambda position: [find(position)])
        return found

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return all(inputs)
