"""Set length: the user knows how many samples there are."""

from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Each
from headrace.ops.counts import BadCount

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SetLength(Each[T, T]):
    """The same samples, with this length told to whoever asks."""

    told: int

    def __post_init__(self) -> None:
        if not isinstance(self.told, int) or self.told < 0:
            raise BadCount(f"set_length(length) needs a whole number >= 0, not {self.told!r}")

    def apply(self, sample: T) -> T:
        return sample

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.told

    def identity(self) -> tuple[Any, ...]:
        return ("set_length",)
