"""Batch: consecutive samples as one list, and the elements of lists one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from headrace.context import read_each
from headrace.errors import BadOption
from headrace.op import Flat, Here, Indexed, Op
from headrace.ops.ahead import ahead_of
from headrace.ops.counts import positive

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch(Op[T, list[T]]):
    """Group `size` consecutive samples into a list."""

    size: int
    drop_last: bool = False
    quiet = True

    def __post_init__(self) -> None:
        positive(self.size, f"batch(size) needs a positive whole number, not {self.size!r}")

    def flow(self, samples: Iterator[T], _here: Here) -> Iterator[list[T]]:
        while group := list(islice(samples, self.size)):
            if len(group) == self.size or not self.drop_last:
                yield group

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        size, total, fetch = self.size, inner.length, inner.get

        def get(position: int) -> list[T]:
            wanted = range(position * size, min((position + 1) * size, total))
            if not here.lenient:
                return [fetch(p) for p in wanted]
            found = read_each(wanted, lambda p: (fetch(p),), here, position)
            return [one[0] for one in found if one is not None]

        found = Indexed(self._count(total), get)
        found.ahead = ahead_of(
            inner, lambda some: [p for b in some for p in range(b * size, min((b + 1) * size, total))]
        )
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else self._count(inputs[0])

    def _count(self, total: int) -> int:
        return total // self.size if self.drop_last else -(-total // self.size)

    def identity(self) -> tuple[Any, ...]:
        # The size is left out on purpose: a snapshot counts samples, so that it loads at another batch size.
        return ("batch", self.drop_last)


@dataclass(frozen=True, slots=True)
class Unbatch(Flat[Any, Any]):
    """Flatten `level` levels of lists; -1 flattens them all."""

    level: int = 1

    def __post_init__(self) -> None:
        if self.level < -1:
            raise BadOption(f"unbatch_level must be -1 or >= 0, not {self.level}")

    def spread(self, sample: object) -> Iterator[Any]:
        yield from self._flatten(sample, self.level)

    def _flatten(self, sample: object, level: int) -> Iterator[Any]:
        if level == 0 or (level == -1 and not isinstance(sample, list)):
            yield sample
        elif isinstance(sample, list):
            for element in sample:
                yield from self._flatten(element, level if level == -1 else level - 1)
        else:
            raise IndexError(f"unbatch_level {self.level} exceeds the depth of the DataPipe")


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
