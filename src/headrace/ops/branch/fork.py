"""Several pipes out of one: fork gives all samples to each, in other forms each sample to one, or a field to each."""

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Each, Here, Indexed, Op, as_input
from headrace.ops.branch.branch import BranchTap
from headrace.tables.ops.columns import close_streams

T = TypeVar("T")


_COPIES = {"shallow": copy.copy, "deep": copy.deepcopy}


@dataclass(frozen=True, slots=True, eq=False)
class Fork(Op[T, T]):
    """Where one pipe becomes `count` of them."""

    count: int
    buffer_size: int = 1000
    local: threading.local = field(default_factory=threading.local, repr=False)
    """The last sample that each thread has fetched by its position. It is not sent to other processes."""
    quiet = True
    length = as_input

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        yield from samples

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, local, seed, readers = inner.get, self.local, here.seed, self.count

        def get(position: int) -> Any:
            """The taps usually ask for the same position one after the other: it is fetched once for all of them."""
            at, sample, left = getattr(local, "last", (None, None, 0))
            if at != (seed, position) or not left:
                sample, left = fetch(position), readers
            # Each tap is served once: one that asks again may have changed the sample that it was given.
            local.last = ((seed, position), sample, left - 1) if left > 1 else (None, None, 0)
            return sample

        return Indexed(inner.length, get)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fork, (self.count, self.buffer_size)

    def describe(self) -> str:
        return f"fork({self.count}, buffer_size={self.buffer_size})"

    def identity(self) -> tuple[Any, ...]:
        return ("fork", self.count)


@dataclass(frozen=True, slots=True)
class ForkTap(BranchTap[T]):
    """All samples, once more; as copies, if asked for."""

    number: int
    count: int
    buffer_size: int = 1000
    copy: str | None = None
    length = as_input

    def __post_init__(self) -> None:
        if self.copy is not None and self.copy not in _COPIES:
            raise BadOption(f"Unknown copy method `{self.copy}` requested, choose one of None, `shallow` or `deep`.")

    def flow(self, source: Iterator[T], here: Here) -> Iterator[T]:
        samples = BranchTap.flow(self, source, here)
        return samples if self.copy is None else map(_COPIES[self.copy], samples)

    def route(self, number: int, sample: T) -> Iterable[tuple[int, T]]:
        return [(tap, sample) for tap in range(self.count)]

    def overflow(self, waiting: dict[int, deque[Any]], tap: int) -> str | None:
        if self.buffer_size < 0 or max(map(len, waiting.values())) <= self.buffer_size:
            return None
        return (
            f"ForkerIterDataPipe buffer overflow,buffer size {self.buffer_size} is insufficient. "
            "Read the branches side by side, or raise buffer_size."
        )

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        if self.copy is None:
            return Indexed(inner.length, inner.get)
        fetch, duplicate = inner.get, _COPIES[self.copy]
        return Indexed(inner.length, lambda position: duplicate(fetch(position)))


@dataclass(frozen=True, slots=True)
class TurnTap(BranchTap[T]):
    """Every `count`-th sample, from sample `number` on."""

    number: int
    count: int
    buffer_size: int = 1000

    def route(self, number: int, sample: T) -> Iterable[tuple[int, T]]:
        return [(number % self.count, sample)]

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return inputs[0].every(self.count, self.number)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else len(range(self.number, inputs[0], self.count))


@dataclass(frozen=True, slots=True)
class Column(Each[Any, Any]):
    """One field of every sample."""

    column: Any

    def apply(self, sample: Any) -> Any:
        return sample[self.column]


@dataclass(frozen=True, slots=True)
class Classify(Each[T, tuple[int | None, T]]):
    """Each sample with the number of the pipe that it belongs to; None belongs nowhere."""

    fn: Callable[[T], Any]
    count: int
    drop_none: bool = False
    user = True
    verb = "demux"

    def apply(self, sample: T) -> tuple[int | None, T]:
        branch = self.fn(sample)
        if branch is None and self.drop_none:
            return None, sample
        if branch is None or not 0 <= branch < self.count:
            raise ValueError(
                f"Output of the classification fn should be between 0 and {self.count - 1}. {branch} is returned."
            )
        return int(branch), sample


@dataclass(frozen=True, slots=True)
class DemuxTap(BranchTap[T]):
    """The samples of one class."""

    number: int
    buffer_size: int = 1000

    def route(self, number: int, sample: tuple[int | None, T]) -> Iterable[tuple[int, T]]:
        branch, value = sample
        if branch is None:
            close_streams(value)
            return ()
        return ((branch, value),)
