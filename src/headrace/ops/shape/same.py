"""Same: ops that hand every sample on as it is, and tell the engine something.

prefetch    does nothing: the engine reads ahead in every graph; kept so that a graph prints as it was written
dispatch    everything before it runs once, in one place: it is a shard point by another name
fullsync    all ranks stop after the same number of steps; in one process there is nothing to wait for
set_length  the user knows how many samples there are
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Each
from headrace.ops.counts import BadCount, positive
from headrace.ops.order.sharding import Sharding

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Same(Each[T, T]):
    """Stands in for a shuffle or the like that has been switched off."""

    def apply(self, sample: T) -> T:
        return sample


@dataclass(frozen=True, slots=True)
class Prefetch(Same[T]):
    """Samples are made ahead of the reader."""

    buffer_size: int = 10

    def __post_init__(self) -> None:
        positive(self.buffer_size, "'buffer_size' is required to be a positive integer.")

    def identity(self) -> tuple[Any, ...]:
        return ("prefetch",)


@dataclass(frozen=True, slots=True)
class Dispatch(Sharding[T]):
    """From here on, work is divided among the workers; what stands before runs once."""

    verb = "sharding_round_robin_dispatch"


@dataclass(frozen=True, slots=True)
class FullSync(Same[T]):
    """All ranks of a job stop after the same step; runs where the training loop runs."""

    timeout: float = 1800
    consumer = True

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise BadOption(f"fullsync(timeout=) needs a number of seconds > 0, not {self.timeout!r}")

    def identity(self) -> tuple[Any, ...]:
        return ("fullsync",)


@dataclass(frozen=True, slots=True)
class SetLength(Same[T]):
    """The same samples; `len()` and the plan use this length."""

    samples: int

    def __post_init__(self) -> None:
        if not isinstance(self.samples, int) or self.samples < 0:
            raise BadCount(f"set_length(length) needs a whole number >= 0, not {self.samples!r}")

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.samples

    def identity(self) -> tuple[Any, ...]:
        return ("set_length",)
