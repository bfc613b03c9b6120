"""DataChunk: a list of samples that belong together."""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


class DataChunk(list[T]):
    """A list that knows it is a batch."""

    __slots__ = ()

    @property
    def items(self) -> list[T]:
        return self

    def raw_iterator(self) -> Iterator[T]:
        """The elements as they are stored."""
        return iter(self)

    def as_str(self, indent: str = "") -> str:
        """The elements in one line."""
        return indent + "[" + ", ".join(str(element) for element in self) + "]"
