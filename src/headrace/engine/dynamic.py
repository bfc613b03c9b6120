"""Dynamic sharding: ranks take the next block of positions from a counter that they share.

A fast rank takes more blocks than a slow one; every block is taken once. What is left of an epoch that goes on in the
middle is numbered anew: block k is the k-th group of `size` positions that are not finished yet, in order.

    finished   ranges of positions [start, stop) that are delivered whole, by whichever rank
    parts      blocks of which some outputs are delivered: their ranges, and how many outputs to leave out

Each rank tells the others, beside the counter, which blocks it has finished. So a snapshot on any rank is one of the
whole job, and loads on any number of ranks:

    [["d", [[start, stop], ...], [[[[start, stop], ...], skip], ...]], 0, failed samples]
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from headrace.engine.program import Program
from headrace.engine.turns import Spot
from headrace.errors import BadPipe, SnapshotRefused
from headrace.op import Each

Range = tuple[int, int]
Part = tuple[tuple[Range, ...], int]


class Counter(Protocol):
    """What ranks share; see `headrace.ranks.counter`."""

    def take(self) -> int: ...
    def finish(self, blocks: list[int], part: tuple[int, int] | None) -> None: ...
    def everyone(self) -> list[tuple[list[int], tuple[int, int] | None]]: ...


class Done(NamedTuple):
    """What was delivered before."""

    finished: tuple[Range, ...] = ()
    parts: tuple[Part, ...] = ()
    skipped: int = 0

    @classmethod
    def of(cls, place: Any) -> "Done":
        return cls() if place is None else cls(place[0][1], place[0][2], place[2])


class Blocks:
    """The blocks of what is left."""

    def __init__(self, length: int, size: int, done: Done, drop_last: bool = False) -> None:
        self._parts = done.parts
        self._size = size
        self._gaps = _gaps(merged([*done.finished, *(r for ranges, _ in done.parts for r in ranges)]), length)
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
        return self._parts[block][1] if block < len(self._parts) else 0


class Dynamic:
    """One epoch of one rank."""

    def __init__(self, program: Program, epoch: int, counter: Counter, done: Done) -> None:
        stage = program.stages[0]
        indexed = program.head.indexed(program.seed, epoch)
        assert indexed is not None
        self._size = stage.group or program.block
        self._whole = (indexed.length, self._size, stage.drop_last)
        self._done = done
        last = max((stop for _, stop in [*done.finished, *(r for ranges, _ in done.parts for r in ranges)]), default=0)
        if last > indexed.length:
            raise SnapshotRefused(f"the snapshot stands at sample {last}, but there are only {indexed.length} now")
        self._blocks = Blocks(indexed.length, self._size, done, stage.drop_last)
        self._counter = counter
        self._taken: list[int] = []
        self._open: dict[int, None] = {}
        """Tickets of this rank that are not finished, in order."""
        self._part: tuple[int, int] | None = None
        self._skipped = done.skipped

    def tickets(self) -> Iterator[tuple[int, Any, Spot, Spot]]:
        """What a feed hands out: number, payload, marks before and after."""
        while (block := self._counter.take()) < self._blocks.count:
            ticket = len(self._taken)
            self._taken.append(block)
            self._open[ticket] = None
            (first, stop), *others = self._blocks.ranges(block)
            payload = (first, stop, tuple(p for start, end in others for p in range(start, end)))
            # Random values hang on the number: it is the one that a batch of these samples has in any run.
            yield first // self._size, payload, Spot(self, ticket), Spot(self, ticket + 1)

    def mark(self, ticket: int) -> tuple[Any, ...]:
        return ("d", ticket)

    def skip(self, ticket: int) -> int:
        return self._blocks.skip(self._taken[ticket])

    def watch(self, source: Iterator[Any], mark: Any) -> Iterator[Any]:
        """The samples of a run; the others are told of each block that is finished."""
        for sample in source:
            place = mark()
            while len(place) == 5:  # one-to-one ops that run in the consumer, on top of the run
                place = place[4][0]
            self._note(*place[:3])
            yield sample
        self._finish(list(self._open), None)

    def _note(self, mark: Any, gone: int, skipped: int) -> None:
        self._skipped = skipped
        if mark[0] == "d":  # a block is a batch, and it need not be the oldest one
            self._finish([mark[1] - 1], None)
            return
        ticket, gone = mark[1][1], mark[2] + gone
        self._finish([t for t in self._open if t < ticket], (self._taken[ticket], gone) if gone else None)

    def _finish(self, tickets: list[int], part: tuple[int, int] | None) -> None:
        if not tickets and part == self._part:
            return
        for ticket in tickets:
            del self._open[ticket]
        self._part = part
        self._counter.finish([self._taken[ticket] for ticket in tickets], part)

    def place(self) -> Any:
        """Where the whole job stands; None when everything is delivered."""
        finished = list(self._done.finished)
        begun = dict.fromkeys(range(len(self._done.parts)), 0)
        for blocks, part in self._counter.everyone():
            for block in blocks:
                finished += self._blocks.ranges(block)
                begun.pop(block, None)
            if part is not None:
                begun[part[0]] = part[1]
        parts = tuple((self._blocks.ranges(b), self._blocks.skip(b) + gone) for b, gone in sorted(begun.items()))
        done = Done(merged(finished), parts, self._skipped)
        length, size, drop_last = self._whole
        if not Blocks(length, size, done, drop_last).count:
            return None
        return ("d", done.finished, done.parts), 0, done.skipped


def check_program(program: Program) -> None:
    """Raise unless blocks of this program can be dealt out one by one, and told apart when they are finished."""
    if not program.indexed:
        raise BadPipe(
            "sharding='dynamic' deals out positions, and this pipe is a stream, which every rank reads from its start; "
            "give it a source with random access, or leave sharding at 'static'"
        )
    if len(program.stages) > 2 or not all(isinstance(node.op, Each) for node in (*program.last.nodes, *program.tail)):
        raise BadPipe(
            "sharding='dynamic' has to know which blocks a batch was made of, and this pipe regroups samples more than "
            "once; batch once, and after all ops that change the number of samples"
        )


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
