"""Blocks from a counter: ranks take the next block of positions from a counter that they share (sharding="dynamic").

A fast rank takes more blocks than a slow one; every block is taken once. When an epoch goes on in the middle, the
blocks that are left are numbered anew: block k is the k-th group of `size` positions that are not finished yet.

Each rank reports to the others, beside the counter, which blocks it has finished. So a snapshot of any rank is one of
the whole job, and loads on any number of ranks.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.feeds.positions import check_inside
from headrace.engine.program import Program
from headrace.errors import SnapshotRefused

Range = tuple[int, int]
Part = tuple[tuple[Range, ...], int]


@dataclass(frozen=True, slots=True)
class Finished(Place):
    """What was delivered: whole ranges [start, stop) of positions, and some outputs of blocks that were begun."""

    label: ClassVar[str] = "the blocks of a snapshot"
    kind: ClassVar[str] = "blocks"
    feed: ClassVar[str] = "positions"
    finished: tuple[Range, ...] = ()
    parts: tuple[Part, ...] = ()
    """Of each block that was begun: its ranges, and how many outputs were delivered."""

    def check(self) -> None:
        if not all(ranges for ranges, _ in self.parts):
            raise SnapshotRefused("a block of the snapshot is empty")
        if any(start >= stop for start, stop in self.ranges()):
            raise SnapshotRefused("a range of the snapshot ends before it begins")

    def describe(self) -> str:
        done = sum(stop - start for start, stop in self.finished)
        return f"{done} samples of blocks that are finished" + (f", {len(self.parts)} blocks begun" * bool(self.parts))

    def fit(self, program: Program, stage: int) -> Place:
        raise SnapshotRefused("this snapshot was taken with sharding='dynamic': make the loader with that")

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        raise AssertionError("which blocks a rank takes is for the shared counter to say")

    def check_below(self, length: int) -> None:
        """Raise unless all its positions lie below this length."""
        check_inside(max((stop for _, stop in self.ranges()), default=0), length)

    def ranges(self) -> list[Range]:
        return [*self.finished, *(r for ranges, _ in self.parts for r in ranges)]


@dataclass(frozen=True, slots=True)
class Taken(Place):
    """How many of the blocks that this rank has taken are delivered. It is never in a snapshot: no other rank knows."""

    feed: ClassVar[str] = "positions"
    ticket: int
    part: int = 0
    """How many outputs of the next block are delivered."""

    def describe(self) -> str:
        return f"block {self.ticket} of those that this rank has taken"

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        raise AssertionError("which blocks a rank takes is for the shared counter to say")


class BlocksLeft:
    """The blocks that are left of an epoch."""

    def __init__(self, length: int, size: int, done: Finished, drop_last: bool = False) -> None:
        self._parts = done.parts
        self._size = size
        self._gaps = _gaps(merged(done.ranges()), length)
        self._firsts = [0, *accumulate(stop - start for start, stop in self._gaps)]
        left = self._firsts[-1]
        self.count = len(self._parts) + (left // size if drop_last else -(-left // size))

    def ranges(self, block: int) -> tuple[Range, ...]:
        """The positions of a block; those that were begun come first."""
        if block < len(self._parts):
            return self._parts[block][0]
        at = (block - len(self._parts)) * self._size
        stop = min(at + self._size, self._firsts[-1])
        found: list[Range] = []
        gap = bisect_right(self._firsts, at) - 1
        while at < stop:
            first = self._gaps[gap][0] + at - self._firsts[gap]
            many = min(stop, self._firsts[gap + 1]) - at
            found.append((first, first + many))
            at += many
            gap += 1
        return tuple(found)

    def skip(self, block: int) -> int:
        """How many outputs of a block were delivered before."""
        return self._parts[block][1] if block < len(self._parts) else 0


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same positions in as few ranges as possible, in order."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return tuple(found)


def _gaps(done: tuple[Range, ...], length: int) -> list[Range]:
    """What lies between these ranges."""
    edges = [0, *(edge for start, stop in done for edge in (start, stop)), length]
    return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1]]
