"""Feeds: where the tickets of a stage come from.

    Batches     arithmetic: positions of the head, in the batches of this rank
    Items       arithmetic: positions of the head, in blocks
    Listed      an iterator of the consumer's, one ticket per item
    Strands     credits for the next block of each strand
    Regroup     samples of the stage before, cut into groups; only references move

`next()` is the next ticket, or None if there is none now; `ended` says that there will be none any more. Every ticket
knows where the epoch stands before and after it (a *mark*: nested tuples of plain data), so that a snapshot between
any two deliveries is a look at the ticket at hand.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.engine.messages import Reply, Ticket
from headrace.engine.program import Stage
from headrace.plan.share import Share, deal
from headrace.plan.world import World

Mark = Any


class Block:
    """Many samples that one ticket made, wherever they lie."""

    __slots__ = (
        "after", "before", "count", "error", "held", "kept", "lease", "outputs", "skips", "slot", "spent", "users",
    )  # fmt: skip

    def __init__(self, reply: Reply) -> None:
        self.slot = reply.slot
        self.outputs = reply.outputs
        self.count = reply.count
        self.error = reply.error
        self.before = reply.ticket.before
        self.after = reply.ticket.after
        self.skips = reply.skips
        self.kept = reply.kept
        self.users = 0
        """Tickets in flight that refer to it."""
        self.spent = False
        """All its samples have been handed on."""
        self.held = False
        """A worker's user code still looks into it: the slot must not be used again."""
        self.lease: Any = None


def inputs_of(ticket: Ticket) -> int:
    """How many samples a ticket was made from."""
    payload = ticket.payload
    if type(payload) is tuple and len(payload) == 3:
        if type(payload[0]) is list:
            return sum(stop - first for _, first, stop in payload[0])
        return int(payload[1] - payload[0] + len(payload[2]))
    return 1


class _Arithmetic:
    """A feed that holds no samples."""

    def blocks(self) -> list[Block]:
        return []


class Batches(_Arithmetic):
    """Positions of the head, in the batches of this rank."""

    def __init__(self, stage: Stage, world: World, ends: str, epoch: int, length: int, start: int) -> None:
        assert stage.group is not None
        policy = "drop" if stage.drop_last else ends
        ranks, rank = world.share_ranks, world.share_rank
        self.share = Share(length, stage.group, ranks, rank, policy, start)  # type: ignore[arg-type]
        self._before = start // (stage.group * ranks)
        self._epoch = epoch
        self._step = 0
        self.ended = False

    def next(self, owner: Any) -> Ticket | None:
        step, share = self._step, self.share
        if step >= share.steps:
            self.ended = True
            return None
        self._step = step + 1
        block = share.block(step)
        extra = tuple(block.positions()[block.stop - block.start :]) if block.filled else ()
        # The number of the batch among those of all ranks: random values hang on it, so they do not depend on the
        # world.
        number = (self._before + step) * share.ranks + share.rank
        ticket = Ticket(owner, 0, self._epoch, number, (block.start, block.stop, extra))
        ticket.before = _Step(share, step)
        ticket.after = _Step(share, step + 1)
        return ticket


class _Step(NamedTuple):
    """A mark that is worked out only when somebody asks: most tickets are never asked."""

    share: Share
    step: int


def plain(mark: Mark) -> Mark:
    """The mark as plain data."""
    if type(mark) is _Step:
        return ("p", mark.share.delivered(mark.step))
    if type(mark) is tuple and mark and mark[0] == "r":
        return ("r", plain(mark[1]), *mark[2:])
    return mark


class Items(_Arithmetic):
    """Positions of the head, in blocks that mean nothing but convenience; ranks take single items in turn."""

    def __init__(self, block: int, world: World, epoch: int, length: int, start: int) -> None:
        self._block = block
        self._ranks = world.share_ranks
        self._mine = deal(length - start, self._ranks, world.share_rank)
        self._start = start
        self._epoch = epoch
        self._at = 0
        self.ended = False

    def next(self, owner: Any) -> Ticket | None:
        at, ranks, start = self._at, self._ranks, self._start
        if at >= len(self._mine):
            self.ended = True
            return None
        if ranks == 1:
            # Blocks lie at multiples of their size wherever the epoch goes on from.
            stop = min(at + self._block - (start + at) % self._block, len(self._mine))
            payload: Any = (start + at, start + stop, ())
            number = (start + at) // self._block
        else:
            stop = min(at + self._block, len(self._mine))
            payload = (0, 0, tuple(start + i for i in self._mine[at:stop]))
            number = payload[2][0]
        self._at = stop
        ticket = Ticket(owner, 0, self._epoch, number, payload)
        ticket.before = ("p", start + at * ranks)
        ticket.after = ("p", start + stop * ranks)
        return ticket


class Listed(_Arithmetic):
    """Items of an iterator that runs in the consumer."""

    def __init__(self, items: Iterator[Any], epoch: int, start: int = 0) -> None:
        self._items = items
        self._epoch = epoch
        self._number = start
        self.ended = False

    def next(self, owner: Any) -> Ticket | None:
        try:
            item = next(self._items)
        except StopIteration:
            self.ended = True
            return None
        ticket = Ticket(owner, 0, self._epoch, self._number, item)
        ticket.before = ("l", self._number)
        self._number += 1
        ticket.after = ("l", self._number)
        return ticket


class Entry:
    """Samples `first..stop` of a block, with where the epoch stands before and after them."""

    __slots__ = ("after", "before", "block", "first", "stop")

    def __init__(self, block: Block, first: int, stop: int, before: Mark, after: Mark) -> None:
        self.block = block
        self.first = first
        self.stop = stop
        self.before = before
        self.after = after


class Strands:
    """Credits for blocks of strands, and the order in which their samples follow each other: in turn, one from each."""

    def __init__(self, strands: int, epoch: int, depth: int, mark: Mark = None) -> None:
        self._epoch = epoch
        self._depth = depth
        turn, saved = (0, [(None, 0, 0, False)] * strands) if mark is None else (mark[1], mark[2])
        self._turn = turn
        self._asked = [block for _, block, _, _ in saved]
        self._over = [over for _, _, _, over in saved]
        self._taken = [skip for _, _, skip, _ in saved]
        self._states = [state for state, _, _, _ in saved]
        """Of each strand, where it stood before the block at the front of its queue."""
        self._open = list(self._states)
        self._numbers = list(self._asked)
        self._waiting = [0] * len(saved)
        self._queues: list[deque[tuple[Block, Any]]] = [deque() for _ in saved]
        self.ended = all(self._over)

    def next(self, owner: Any) -> Ticket | None:
        # The strand with the least work ahead of it, and among those the one whose turn comes first.
        strands = len(self._over)
        for s in sorted(range(strands), key=lambda s: (self._ahead(s), (s - self._turn) % strands)):
            if not self._over[s] and self._ahead(s) < self._depth:
                ticket = Ticket(owner, 0, self._epoch, self._asked[s], (s, self._open[s]))
                ticket.strand = ticket.pin = s
                self._open[s] = None
                self._asked[s] += 1
                self._waiting[s] += 1
                return ticket
        return None

    def _ahead(self, s: int) -> int:
        return self._waiting[s] + len(self._queues[s])

    def take(self, reply: Reply) -> None:
        """The next block of a strand: blocks of one strand come in order, because one worker has it open."""
        s = reply.ticket.strand
        assert s is not None
        self._waiting[s] -= 1
        self._over[s] = self._over[s] or reply.ended or reply.error is not None
        self._queues[s].append((Block(reply), reply.state))

    def entries(self) -> Iterator[Entry]:
        """What can be handed on now, in order."""
        strands = len(self._queues)
        idle = 0
        while idle < strands:
            s = self._turn % strands
            queue = self._queues[s]
            while queue and queue[0][0].error is None and self._taken[s] >= queue[0][0].count:
                self._next_block(s)
            if not queue:
                if not self._over[s]:
                    return
                self._turn += 1
                idle += 1
                continue
            idle = 0
            block = queue[0][0]
            before = self.mark()
            first = self._taken[s]
            stop = block.count if strands == 1 else first + 1
            self._taken[s] = stop
            self._turn += 1
            if stop >= block.count:
                self._next_block(s)
            yield Entry(block, first, stop, before, self.mark())
        self.ended = True

    def blocks(self) -> list[Block]:
        """Blocks with samples that were not handed on."""
        return [block for queue in self._queues for block, _ in queue]

    def _next_block(self, s: int) -> None:
        block, state = self._queues[s].popleft()
        self._taken[s] = max(0, self._taken[s] - block.count)
        self._states[s] = state
        self._numbers[s] += 1

    def mark(self) -> Mark:
        saved = [
            (self._states[s], self._numbers[s], self._taken[s], self._over[s] and not self._queues[s])
            for s in range(len(self._queues))
        ]
        return ("s", self._turn % len(saved), saved)


class Regroup:
    """Samples of the stage before, in groups; those of other ranks are passed over.

    Ranks that all see the same stream share it by arithmetic: at each step they take whole groups in turn, and the end
    is dealt as `Share` says. A full step is handed out only when what follows it can be dealt by itself, so that the
    end never has to ask for it back.
    """

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
    ) -> None:
        self._stage = stage.number
        self._size = stage.group
        self._ends = "drop" if stage.drop_last else ends
        self._ranks = ranks
        self._rank = rank
        self._block = block
        self._epoch = epoch
        self._free = free
        self._entries: deque[Entry] = deque()
        self._offset: int
        self._base: int
        self._number: int
        self._offset, self._base, self._number = (0, 0, 0) if mark is None else mark[2:]
        """Samples of the first entry that are gone; the number of the next sample; the number of the next step."""
        self._waiting = -self._offset
        self._failing = 0
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
        """Blocks with samples that were not handed on."""
        return [entry.block for entry in self._entries]

    def push(self, entry: Entry) -> None:
        self._entries.append(entry)
        if entry.block.error is not None:
            self._failing += 1
        else:
            self._waiting += entry.stop - entry.first

    def next(self, owner: Any) -> Ticket | None:
        entries = self._entries
        while entries and entries[0].block.error is None and entries[0].stop - entries[0].first <= self._offset:
            self._spend()
        if not entries:
            self.ended = self.closed
            return None
        if entries[0].block.error is not None:
            return self._failed(owner)
        step = self._step()
        if step is None:
            return None
        before, take, stride, after = step
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
        ticket = Ticket(owner, self._stage, self._epoch, self._number * self._ranks + self._rank, (refs, base, stride))
        self._number += 1
        ticket.blocks = [ref[0] for ref in refs]
        ticket.skips = refs[-1][0].skips if refs else 0
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

    def _step(self) -> tuple[int, int, int, int] | None:
        """The next step: samples to pass over, samples to take, how far apart these lie, samples to pass over."""
        size, ranks = self._size, self._ranks
        if self._failing:
            # What came before the error is handed out as it is; nothing waits for what will never come.
            ahead = -self._offset
            for entry in self._entries:
                if entry.block.error is not None:
                    break
                ahead += entry.stop - entry.first
            return 0, min(size or ahead, ahead), 1, 0
        if size is None:
            if ranks == 1:
                return 0, self._entries[0].stop - self._entries[0].first - self._offset, 1, 0
            rounds = min(self._block, self._waiting // ranks)
            if rounds:
                return self._rank, rounds, ranks, ranks - 1 - self._rank
            if self.closed:
                self._leave_out()
            return None
        whole = size * ranks
        if not self.closed:
            if self._waiting < (size if ranks == 1 else whole + ranks):
                return None
            return self._rank * size, size, 1, whole - (self._rank + 1) * size
        share = Share(self._waiting, size, ranks, self._rank, self._ends)  # type: ignore[arg-type]
        if not share.steps:
            self._leave_out()
            return None
        block = share.block(0)
        return block.start, block.stop - block.start, 1, share.delivered(1) - block.stop

    def _leave_out(self) -> None:
        self.surplus += self._waiting
        while self._entries:
            self._spend()
        self._waiting = 0
        self.ended = True

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
