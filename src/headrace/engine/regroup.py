"""Regroup: samples of the stage before, cut into groups; only references move.

Ranks that all see the same stream share it by arithmetic: at each step they take whole groups in turn, and the end is
dealt as `Share` says. A full step is handed out only when what follows it can be dealt by itself, so that the end never
has to ask for it back.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.engine.feeds import Block, Entry, Mark
from headrace.engine.program import Stage
from headrace.engine.turns import Spot
from headrace.engine.wire.messages import Ticket
from headrace.plan.share import Share


class _Step(NamedTuple):
    """Samples to pass over, to take, how far apart these lie, samples to pass over; then what fills the group."""

    before: int
    take: int
    stride: int = 1
    after: int = 0
    fill: tuple[tuple[Block, int], ...] = ()


class Regroup:
    """Samples of the stage before, in groups; those of other ranks are passed over."""

    def __init__(
        self,
        stage: Stage,
        epoch: int,
        free: Callable[[Block], None],
        mark: Mark = None,
        ranks: int = 1,
        rank: int = 0,
        ends: str = "short",
        block: int = 64,
        own: tuple[int, int] = (1, 0),
    ) -> None:
        self._stage = stage.number
        self._size = stage.group
        self._ends = "drop" if stage.drop_last else ends
        self._ranks = ranks
        self._rank = rank
        self._ways, self._way = own
        """Where each rank groups samples of its own, numbers are taken in turn: no two ranks draw the same values."""
        self._block = block
        self._epoch = epoch
        self._free = free
        self._entries: deque[Entry] = deque()
        self._offset: int
        self._base: int
        self._number: int
        self._offset, self._base, self._number = (0, 0, 0) if mark is None else mark[2:]
        """Samples of the first entry that are gone; the number of the next sample; the number of the next step."""
        self._waiting = self._unkept = -self._offset
        self._failing = 0
        self._skips = 0
        self._wanted = (self._size or 0) * ranks - 1 if self._ends == "repeat" else 0
        """How many samples of the epoch's start the end may need."""
        self._start: list[tuple[Block, int]] = []
        self._filled: dict[int, int] = {}
        """Of groups that are filled up, by how many samples."""
        self.surplus = 0
        """Samples that no rank gets, because not every rank would get one."""
        self.closed = False
        """The stage before has ended."""
        self.ended = False

    @property
    def backlog(self) -> int:
        """Groups that wait to be handed out. What does not fill a group yet does not count: it waits for more."""
        held_back = self._ranks if self._ranks > 1 else 0
        if self._size is None:
            return len(self._entries) if self._ranks == 1 else self._waiting // (self._block * self._ranks)
        return max(0, self._waiting - held_back) // (self._size * self._ranks)

    def blocks(self) -> list[Block]:
        """Blocks with samples that were not handed on; the run is being left."""
        return [*(entry.block for entry in self._entries), *self._let_go_of_start()]

    def mask(self, ticket: Ticket) -> list[bool] | None:
        """Which samples of a ticket are real, where some only fill it."""
        filled = self._filled.get(ticket.number)
        if not filled:
            return None
        count = sum(stop - first for _, first, stop in ticket.payload[0])
        return [True] * (count - filled) + [False] * filled

    def push(self, entry: Entry) -> None:
        if entry.block.error is not None:
            self._failing += 1
        elif type(entry.before) is Spot:
            # Some of its samples were delivered before the epoch went on here.
            entry.first = min(entry.stop, entry.first + entry.before.skip)
        self._entries.append(entry)
        if entry.block.error is None:
            self._waiting += entry.stop - entry.first
            if len(self._start) < self._wanted:
                self._keep(entry)

    def next(self, owner: Any) -> Ticket | None:
        entries = self._entries
        while entries and entries[0].block.error is None and entries[0].stop - entries[0].first <= self._offset:
            self._spend()
        if not entries:
            self._end_if_closed()
            return None
        if entries[0].block.error is not None:
            return self._failed(owner)
        step = self._step()
        if step is None:
            return None
        before, take, stride, after, fill = step
        for block, _ in fill:
            block.users += 1
        start, kept = ("r", *self._at(), self._base, self._number), self._kept()
        self._pass(before)
        base = self._base
        refs: list[tuple[Block, int, int]] = []
        if stride == 1:
            self._take(take, refs)
        else:
            for left in range(take, 0, -1):
                self._take(1, refs)
                self._pass(stride - 1 if left > 1 else 0)
        self._pass(after)
        if refs:
            self._skips = refs[-1][0].skips
        refs += [(block, i, i + 1) for block, i in fill]
        number = (self._number * self._ranks + self._rank) * self._ways + self._way
        if fill:
            self._filled[number] = len(fill)
        payload = (refs, base * self._ways + self._way, stride * self._ways)
        ticket = Ticket(owner, self._stage, self._epoch, number, payload)
        self._number += 1
        ticket.blocks = [ref[0] for ref in refs]
        if refs and self._ends in ("short", "drop") and refs[0][2] == refs[0][0].count:
            ticket.home = refs[0][0]  # no later group needs anything of it
        ticket.skips = self._skips
        ticket.kept = (kept, self._kept())
        ticket.before = start
        ticket.after = ("r", *self._at(), self._base, self._number)
        return ticket

    def _failed(self, owner: Any) -> Ticket:
        """An error of the stage before, at its own place."""
        front = self._entries.popleft()
        self._failing -= 1
        ticket = Ticket(owner, self._stage, self._epoch, self._number, ([], self._base, 1))
        ticket.error = front.block.error
        ticket.skips, ticket.kept = front.block.skips, front.block.kept
        ticket.before = ("r", front.before, 0, self._base, self._number)
        ticket.after = ("r", front.after, 0, self._base, self._number)
        return ticket

    def _step(self) -> _Step | None:
        size, ranks = self._size, self._ranks
        if self._failing:
            # What came before the error is handed out as it is; nothing waits for what will never come.
            ahead = -self._offset
            for entry in self._entries:
                if entry.block.error is not None:
                    break
                ahead += entry.stop - entry.first
            return _Step(0, min(size or ahead, ahead))
        if size is None:
            if ranks == 1:
                return _Step(0, self._entries[0].stop - self._entries[0].first - self._offset)
            rounds = min(self._block, self._waiting // ranks)
            if rounds:
                return _Step(self._rank, rounds, ranks, ranks - 1 - self._rank)
            if self.closed:
                self._leave_out()
            return None
        whole = size * ranks
        if not self.closed:
            if self._waiting < (size if ranks == 1 else whole + ranks):
                return None
            return _Step(self._rank * size, size, 1, whole - (self._rank + 1) * size)
        share = Share(self._waiting, size, ranks, self._rank, self._ends)  # type: ignore[arg-type]
        if not share.steps:
            self._leave_out()
            return None
        block = share.block(0)
        fill: tuple[tuple[Block, int], ...] = ()
        if block.filled and self._ends == "pad":
            last = next(e for e in reversed(self._entries) if e.stop > e.first)
            fill = ((last.block, last.stop - 1),) * block.filled
        elif block.filled:
            # Those that earlier ranks of this step use come first.
            begin = max(0, self._rank * size - self._waiting)
            fill = tuple(self._start[(begin + i) % len(self._start)] for i in range(block.filled))
        return _Step(block.start, block.stop - block.start, 1, share.delivered(1) - block.stop, fill)

    def _keep(self, entry: Entry) -> None:
        """Hold on to samples of the epoch's start, or of where it went on."""
        first = entry.first - min(0, self._unkept)
        self._unkept += entry.stop - entry.first
        for i in range(first, min(entry.stop, first + self._wanted - len(self._start))):
            self._start.append((entry.block, i))
            entry.block.users += 1

    def _let_go_of_start(self) -> list[Block]:
        """The blocks of the epoch's start, which nothing will be filled from any more."""
        blocks = [block for block, _ in self._start]
        self._start, self._wanted = [], 0
        for block in blocks:
            block.users -= 1
        return blocks

    def _leave_out(self) -> None:
        self.surplus += self._waiting
        while self._entries:
            self._spend()
        self._waiting = 0
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        self.ended = self.closed
        if self.ended:
            for block in self._let_go_of_start():
                if block.users == 0 and block.spent:
                    self._free(block)

    def _at(self) -> tuple[Mark, int]:
        """Where the stage before stands at the next sample."""
        if self._entries:
            front = self._entries[0]
            return (front.before, self._offset) if self._offset else (front.before, 0)
        return self._last_after, 0

    def _kept(self) -> int:
        """Samples left out before the block at the front: going on from here meets those inside it again."""
        return self._entries[0].block.kept[0] if self._entries else self._last_kept

    def _take(self, count: int, refs: list[tuple[Block, int, int]]) -> None:
        entries = self._entries
        self._base += count
        self._waiting -= count
        while count:
            entry = entries[0]
            first = entry.first + self._offset
            stop = min(entry.stop, first + count)
            if stop == first:
                self._spend()
                continue
            if refs and refs[-1][0] is entry.block and refs[-1][2] == first:
                refs[-1] = (entry.block, refs[-1][1], stop)
            else:
                refs.append((entry.block, first, stop))
                entry.block.users += 1
            count -= stop - first
            self._offset = stop - entry.first
            if stop == entry.stop:
                self._spend()

    def _pass(self, count: int) -> None:
        self._base += count
        self._waiting -= count
        while count:
            entry = self._entries[0]
            left = entry.stop - entry.first - self._offset
            if left > count:
                self._offset += count
                return
            count -= left
            self._offset = entry.stop - entry.first
            self._spend()

    def _spend(self) -> None:
        entry = self._entries.popleft()
        self._last_after, self._last_kept = entry.after, entry.block.kept[1]
        self._offset = max(0, self._offset - (entry.stop - entry.first))
        block = entry.block
        if entry.stop == block.count:
            block.spent = True
            if block.users == 0:
                self._free(block)
