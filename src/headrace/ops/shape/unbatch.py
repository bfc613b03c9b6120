"""Unbatch: the elements of lists, one by one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.op import Flat


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
