"""Demux: each sample into the one pipe that a function names."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Each
from headrace.ops.branch.branch import BranchTap
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
