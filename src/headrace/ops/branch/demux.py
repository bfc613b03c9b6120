"""Demux: each sample into the one pipe that a function names."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Each, Here, Op
from headrace.ops.branch.branch import tapped
from headrace.ops.branch.fork import overfull
from headrace.tables.ops.columns import close_streams

T = TypeVar("T")


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
class DemuxTap(Op[tuple[int | None, T], T]):
    """The samples of one class."""

    number: int
    buffer_size: int = 1000

    def flow(self, source: Iterator[tuple[int | None, T]], here: Here) -> Iterator[T]:
        return tapped(source, here, self.number, _route, self._overflow)

    def _overflow(self, waiting: dict[int, deque[Any]], tap: int) -> str | None:
        return overfull("DemultiplexerIterDataPipe", waiting, tap, self.buffer_size)


def _route(number: int, classified: tuple[int | None, Any]) -> Iterable[tuple[int, Any]]:
    branch, sample = classified
    if branch is None:
        close_streams(sample)
        return ()
    return ((branch, sample),)
