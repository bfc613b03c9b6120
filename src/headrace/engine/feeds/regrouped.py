"""Regrouped: samples of the stage before, cut into groups; only references move.

Ranks that all see the same stream share it by arithmetic: at each step they take whole groups in turn, and the end is
dealt as `Share` says. A full step is handed out only when enough samples follow it to deal the end without it.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.feeds.place import Feed, Groups, Place, Setting, start_of
from headrace.engine.program import Program
from headrace.engine.wire.messages import Ticket
from headrace.errors import SnapshotRefused
from headrace.plan.share import Share
from headrace.plan.world import World

log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class Regrouped(Place):
    """Where the stage before stands at the next group, and how many samples after that are in earlier groups.

    `base` is the number of the next sample among those that were regrouped, `number` that of the next group, counted
    over the ranks that share them: random values depend on these numbers, and so not on the world.
    """

    label: ClassVar[str] = "a place among regrouped samples"
    kind: ClassVar[str] = "regrouped"
    feed: ClassVar[str] = "refs"
    source: Place
    offset: int = 0
    base: int = 0
    number: int = 0
    ranks: int = 1
    """How many ranks take these samples in turn: when one has delivered a sample of its own, so have all."""

    @classmethod
    def start(cls, program: Program, stage: int) -> Place:
        return cls(start_of(program, stage - 1))

    def check(self) -> None:
        if not self.ranks:
            raise SnapshotRefused("the snapshot's groups are those of no ranks")

    def describe(self) -> str:
        rest = f" + {self.offset}" if self.offset else ""
        return f"group {self.number} (sample {self.base}), read from {self.source.describe()}{rest}"

    def before(self) -> Place | None:
        return self.source

    def inputs(self, world: World) -> int:
        # Samples of a stream are numbered over all ranks, those of later stages by each rank for itself.
        return self.base // world.share_ranks if self.source.common else self.base

    def fit(self, program: Program, stage: int) -> Place:
        Place.fit(self, program, stage)
        self.source.fit(program, stage - 1)
        return self

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        assert source is not None
        return Regroup(self, setting, stage, source) if source.groups is None else source.groups


class _GroupMark(NamedTuple):
    """A mark: a `Regrouped` place, whose source is a mark of the stage before."""

    source: object
    offset: int
    base: int
    number: int
    ranks: int


class _Step(NamedTuple):
    """One group: which of the samples that wait it takes, and what fills it up."""

    before: int
    """Samples to pass over."""
    take: int
    """Samples to take."""
    stride: int = 1
    """How far apart these lie."""
    after: int = 0
    """Samples to pass over behind them."""
    fill: tuple[tuple[Block, int], ...] = ()


class Regroup(Groups):
    """Samples of the stage before, in groups; those of other ranks are passed over."""

    def __init__(self, at: Regrouped, setting: Setting, stage: int, source: Feed) -> None:
        self._source = source
        group, world = setting.program.stages[stage], setting.world
        self._stage = stage
        self._size = group.group
        self._ends = setting.program.ends(stage, setting.ends)
        # Ranks that read the same stream divide it at the first stage after it; later stages are each rank's own.
        shared = at.source.common
        self._ranks, self._rank = (world.share_ranks, world.share_rank) if shared else (1, 0)
        self._apart, self._own = (1, 0) if shared else (world.share_ranks, world.share_rank)
        """Where each rank groups samples of its own, number k of rank r counts as k * apart + r: no two ranks draw the
        same random values."""
        self._block = setting.program.block
        self._epoch = setting.epoch
        self._entries: deque[Entry] = deque()
        self._offset = at.offset + at.source.gone(world.share_rank)
        """Samples of the first entry that are taken or passed over."""
        self._base = at.base
        """The number of the next sample."""
        self._number = at.number
        """The number of the next group, over all ranks that share these samples."""
        self._waiting = self._unkept = -self._offset
        self._failing = 0
        """Errors of the stage before that wait among the entries."""
        self._skips = 0
        self._wanted = (self._size or 0) * self._ranks - 1 if self._ends == "repeat" else 0
        """How many samples of the epoch's start the end may need."""
        self._start: list[tuple[Block, int]] = []
        self._filled: dict[int, int] = {}
        """By the number of a group that is filled up: how many of its samples only fill it."""
        self._turns = self._ranks > 1 and any(s.group is not None for s in setting.program.stages[stage + 1 :])
        """These groups are grouped again: none is cut, and ranks take them in turn, some one more than others."""
        self._uneven = not setting.program.one_to_one
        """Some ranks may get one sample more than others: they tell each other their steps in any case."""
        self._closings: deque[int] = deque()
        """The numbers of samples before which a group ends, full or not."""
        self._last_after: Any = at.source
        self._last_kept = 0

    @property
    def backlog(self) -> int:
        held_back = self._ranks if self._ranks > 1 else 0
        if self._size is None:
            return len(self._entries) if self._ranks == 1 else self._waiting // (self._block * self._ranks)
        return max(0, self._waiting - held_back) // (self._size * self._ranks)

    def blocks(self) -> list[Block]:
        blocks = [*(entry.block for entry in self._entries), *(block for block, _ in self._start)]
        self._let_go_of_start()
        return blocks

    def mask(self, ticket: Ticket) -> list[bool] | None:
        filled = self._filled.get(ticket.number)
        if not filled:
            return None
        _, base, stride = ticket.payload
        real = ticket.inputs() - filled
        return [i < real for i in range(real + filled) if base + i * stride not in ticket.avoid]

    def push(self, entry: Entry) -> None:
        if entry.error is not None:
            if self._waiting < 0:
                return  # it lies among samples that were taken before the epoch went on here
            self._failing += 1
        self._entries.append(entry)
        if entry.error is None:
            self._waiting += entry.stop - entry.first
            if entry.closes:
                self._closings.append(self._base + self._waiting)
            if len(self._start) < self._wanted:
                self._keep(entry)

    def next(self, owner: object) -> Ticket | None:
        entries = self._entries
        while entries and entries[0].error is None and entries[0].stop - entries[0].first <= self._offset:
            self._spend()
        if not entries:
            self._end_if_closed()
            return None
        step = self._step()
        if step is None:
            return self._failed(owner) if self._failing else None
        before, take, stride, after, fill = step
        for block, _ in fill:
            block.hold()
        start, kept = self._stands()
        self._advance(before)
        base = self._base
        refs: list[tuple[Block, int, int]] = []
        if stride == 1:
            self._advance(take, refs)
        else:
            for left in range(take, 0, -1):
                self._advance(1, refs)
                self._advance(stride - 1 if left > 1 else 0)
        self._advance(after)
        if refs:
            self._skips = refs[-1][0].skips
        refs += [(block, i, i + 1) for block, i in fill]
        number = (self._number + self._rank) * self._apart + self._own
        if fill:
            self._filled[number] = len(fill)
        payload = (refs, base * self._apart + self._own, stride * self._apart)
        ticket = Ticket(owner, self._stage, self._epoch, number, payload)
        self._number += self._ranks
        ticket.blocks = [ref[0] for ref in refs]
        if refs and self._ends in ("short", "drop") and refs[0][2] == refs[0][0].count:
            ticket.append_to = refs[0][0]  # no later group needs its samples
        ticket.skips = self._skips
        ticket.before = start
        ticket.after, kept_after = self._stands()
        ticket.kept = (kept, kept_after)
        return ticket

    def at(self, mark: object) -> Place:
        return Regrouped(self._source.at(mark.source), *mark[1:]) if isinstance(mark, _GroupMark) else super().at(mark)

    def _failed(self, owner: object) -> Ticket:
        """The ticket for an error of the stage before. Samples before it that fill no group are in that group too."""
        before, kept = self._stands()
        self._advance(max(0, self._before_error()))
        while self._entries[0].error is None:
            self._spend()  # nothing of it came through a filter
        front = self._entries.popleft()
        self._failing -= 1
        self._last_after, self._last_kept = front.after, front.block.kept[1]
        if front.stop == front.block.count:
            front.block.spend()
        ticket = Ticket(owner, self._stage, self._epoch, self._number, ([], self._base, 1))
        ticket.error = front.error
        ticket.before = before
        ticket.after, kept_after = self._stands()
        ticket.skips, ticket.kept = front.block.skips, (kept, kept_after)
        return ticket

    def behind(self, ticket: Ticket, position: int) -> object:
        before, (_, base, stride) = ticket.before, ticket.payload
        assert isinstance(before, _GroupMark)
        gone = (1 + (position - base) // stride) * self._ranks
        return before._replace(offset=before.offset + gone, base=before.base + gone)

    def _before_error(self) -> int:
        """How many samples wait before the first error. Groups of these are handed out before it."""
        ahead = -self._offset
        for entry in self._entries:
            if entry.error is not None:
                break
            ahead += entry.stop - entry.first
        return ahead

    def _step(self) -> _Step | None:
        size, ranks, rank = self._size, self._ranks, self._rank
        ready = self._before_error() if self._failing else self._waiting
        while self._closings and self._closings[0] <= self._base:
            self._closings.popleft()
        if self._closings and 0 < (left := self._closings[0] - self._base) <= min(size or 0, ready):
            return _Step(0, left)
        if size is None and ranks == 1:
            front = self._entries[0]
            return None if front.error is not None else _Step(0, front.stop - front.first - self._offset)
        if size is None:
            rounds = min(self._block, ready // ranks)
            if rounds > 0:
                return _Step(rank, rounds, ranks, ranks - 1 - rank)
        elif self._failing or not self.closed:
            held_back = 0 if self._failing or ranks == 1 or self._turns else ranks
            if ready >= size * ranks + held_back:
                return _Step(rank * size, size, 1, (ranks - 1 - rank) * size)
        if self._failing or not self.closed:
            return None
        if size is None:
            if self._uneven and rank < ready:
                return _Step(rank, 1, 1, ready - rank - 1)
            self._leave_out()
            return None
        if self._turns:
            return self._next_whole(size)
        share = Share(self._waiting, size, ranks, self._rank, self._ends)
        if not share.steps:
            self._leave_out()
            return None
        block = share.block(0)
        fill: tuple[tuple[Block, int], ...] = ()
        if block.filled and self._ends == "pad":
            last = next(e for e in reversed(self._entries) if e.stop > e.first)
            fill = ((last.block, last.stop - 1),) * block.filled
        elif block.filled:
            # Ranks before this one have filled their groups with the first samples of the epoch's start.
            begin = max(0, self._rank * size - self._waiting)
            fill = tuple(self._start[(begin + i) % len(self._start)] for i in range(block.filled))
        return _Step(block.start, block.stop - block.start, 1, share.delivered(1) - block.stop, fill)

    def _next_whole(self, size: int) -> _Step | None:
        """The next whole group of this rank, at the end; the last one of all need not be full."""
        before = min(self._rank * size, self._waiting)
        take = min(size, self._waiting - before)
        if not take or (take < size and self._ends == "drop"):
            self._leave_out()
            return None
        return _Step(before, take, 1, min(self._waiting, self._ranks * size) - before - take)

    def _keep(self, entry: Entry) -> None:
        """Hold samples of the start of the epoch, or of the place where it went on: they may fill the last group."""
        first = entry.first - min(0, self._unkept)
        self._unkept += entry.stop - entry.first
        for i in range(first, min(entry.stop, first + self._wanted - len(self._start))):
            self._start.append((entry.block, i))
            entry.block.hold()

    def _let_go_of_start(self) -> None:
        """Drop the samples of the epoch's start: no group will be filled from them any more."""
        start, self._start, self._wanted = self._start, [], 0
        for block, _ in start:
            block.drop()

    def _leave_out(self) -> None:
        """Pass over everything that waits: other ranks take it, or it is dropped."""
        if self._waiting > 0 and self._apart > 1:  # (No other rank knows of these.)
            log.warning("%d samples of this rank are left out: they do not fill its last group", self._waiting)
        while self._entries:
            self._spend()
        self._waiting = 0
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        """All samples are taken: if the stage before has ended, so has this one."""
        self.ended = self.closed
        if self.ended:
            self._let_go_of_start()

    def _stands(self) -> tuple[_GroupMark, int]:
        """The mark of where this stage stands at the next sample; and how many samples were left out before the block
        of that. (A run that goes on from here will meet those inside the block again.)"""
        source, offset, kept = self._last_after, 0, self._last_kept
        if self._entries:
            front = self._entries[0]
            source, offset, kept = front.before, front.gone + self._offset, front.block.kept[0]
        return _GroupMark(source, offset, self._base, self._number, self._ranks), kept

    def _advance(self, count: int, refs: list[tuple[Block, int, int]] | None = None) -> None:
        """Go on by `count` samples. With `refs` they are taken: where they lie is added there, and their blocks are
        held; without, they are passed over."""
        self._base += count
        self._waiting -= count
        while count:
            entry = self._entries[0]
            first = entry.first + self._offset
            stop = min(entry.stop, first + count)
            if refs is not None and stop > first:
                if refs and refs[-1][0] is entry.block and refs[-1][2] == first:
                    refs[-1] = (entry.block, refs[-1][1], stop)
                else:
                    refs.append((entry.block, first, stop))
                    entry.block.hold()
            count -= stop - first
            self._offset = stop - entry.first
            if stop == entry.stop:
                self._spend()

    def _spend(self) -> None:
        """Go on to the next entry."""
        entry = self._entries.popleft()
        self._last_after, self._last_kept = entry.after, entry.block.kept[1]
        self._offset = max(0, self._offset - (entry.stop - entry.first))
        if entry.stop == entry.block.count:
            entry.block.spend()
