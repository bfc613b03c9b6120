"""Enumerate: each sample with its number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.op import Here, Indexed, Op

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Enumerate(Op[T, tuple[int, T]]):
    """Pairs (number, sample), counted from `start`."""

    start: int = 0
    quiet = True

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[tuple[int, T]]:
        yield from enumerate(samples, self.start + here.emitted)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        start, fetch = self.start, inner.get
        return Indexed(inner.length, lambda position: (start + position, fetch(position))).placed_as(inner)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return inputs[0]
