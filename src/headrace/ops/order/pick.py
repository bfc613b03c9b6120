"""Pick: the samples at given positions, or under given keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadPipe
from headrace.op import Here, Indexed, Op, indexed_input, place

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Pick(Op[T, T]):
    """The samples `indices`, in their order."""

    indices: Any
    quiet = True
    hands_on = True
    verb = "to_iter_datapipe"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, chosen = inner.get, self.indices
        return Indexed(len(chosen), lambda position: fetch(chosen[position]))

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return len(self.indices)

    def flow(self, source: Iterator[T], here: Here) -> Iterator[T]:
        indexed = indexed_input(source)
        if indexed is None:
            raise BadPipe("to_iter_datapipe(indices) needs random access: put it before any filter, flatmap or stream")
        for position in range(here.emitted, len(self.indices)):
            place.at(here, position)
            yield indexed.get(self.indices[position])
