"""Header: the first samples only."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Lengths, Op, as_input

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Header(Op[T, T]):
    """The first `limit` samples; None means all."""

    limit: int | None = 10
    quiet = True
    hands_on = True
    columnar = as_input

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise BadOption(f"header(limit) needs a number >= 0, not {self.limit}")

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        yield from samples if self.limit is None else islice(samples, max(0, self.limit - here.emitted))

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        length = inner.length if self.limit is None else min(inner.length, self.limit)
        found = Indexed(length, inner.get, inner.take).placed_as(inner)
        found.units = None
        found.lengths = inner.lengths if length == inner.length else self._lengths(inner.lengths, length)
        return found

    def _lengths(self, known: Lengths | None, length: int) -> Lengths | None:
        if known is None:
            return None
        import numpy as np

        tokens = int(known.at(np.arange(length)).sum())
        ends = None if known.ends is None else known.ends[:length]
        return known._replace(tokens=tokens, key=(*known.key, self), ends=ends)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        if self.limit is None or inputs[0] is None:
            return inputs[0]
        return min(inputs[0], self.limit)
