"""Repeat: each sample several times in a row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.errors import BadOption
from headrace.op import Flat, Here, Indexed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Repeat(Flat[T, T]):
    """Each sample `times` times."""

    times: int

    def __post_init__(self) -> None:
        if not isinstance(self.times, int) or self.times <= 1:
            raise BadOption(f"The number of repetition must be > 1, got {self.times}")

    def spread(self, sample: T) -> Iterator[T]:
        for _ in range(self.times):
            yield sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, times = inner.get, self.times
        return Indexed(inner.length * times, lambda position: fetch(position // times))

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else inputs[0] * self.times
