"""Enumerate: each sample with its number, beside it or as one more field of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Here, Indexed, Op, as_input

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Enumerate(Op[T, tuple[int, T]]):
    """Pairs (number, sample), counted from `start`."""

    start: int = 0
    quiet = True
    length = as_input

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[tuple[int, T]]:
        yield from enumerate(samples, self.start + here.emitted)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        start, fetch = self.start, inner.get
        return Indexed(inner.length, lambda position: (start + position, fetch(position))).placed_as(inner)


@dataclass(frozen=True, slots=True)
class AddIndex(Op[Any, Any]):
    """Each dict with its number under `index_name`."""

    index_name: str = "index"
    quiet = True
    length = as_input

    def flow(self, samples: Iterator[Any], here: Here) -> Iterator[Any]:
        for number, sample in enumerate(samples, here.emitted):
            yield self._with(sample, number)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch = inner.get
        return Indexed(inner.length, lambda position: self._with(fetch(position), position))

    def _with(self, sample: object, number: int) -> dict[Any, Any]:
        if not isinstance(sample, Mapping):
            raise NotImplementedError("We only support adding index to row or batch in dict type")
        return {**sample, self.index_name: number}
