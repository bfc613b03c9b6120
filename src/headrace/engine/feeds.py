"""Feeds: where the tickets of a stage come from.

    Batches     arithmetic: positions of the head, in the batches of this rank
    Items       arithmetic: positions of the head, in blocks
    Dealt       positions of the head that somebody else deals out: in turns, by a counter that ranks share
    Listed      an iterator of the consumer's, one ticket per item
    Strands     credits for the next block of each strand

and `regroup.Regroup`, which cuts the samples of the stage before into groups.

`next()` is the next ticket, or None if there is none now; `ended` says that there will be none any more. Every ticket
knows where the epoch stands before and after it (a *mark*: nested tuples of plain data), so that a snapshot between
any two deliveries is a look at the ticket at hand.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.engine.program import Stage
from headrace.engine.turns import Spot
from headrace.engine.wire.messages import Reply, Ticket
from headrace.plan.share import Share, deal
from headrace.plan.world import World

Mark = Any


class Block:
    """Many samples that one ticket made, wherever they lie."""

    __slots__ = (
        "after", "before", "count", "end", "error", "given", "kept", "lease", "outputs", "skips", "slot", "spent",
        "users",
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
        self.end = reply.bytes
        """Where its samples end in the slot."""
        self.given = False
        """A batch has grown in its slot, and has the slot now."""
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

    def mask(self, ticket: Ticket) -> list[bool] | None:
        """Which samples of a ticket are real, where some only fill it."""
        return None


class Batches(_Arithmetic):
    """Positions of the head, in the batches of this rank."""

    def __init__(self, stage: Stage, world: World, ends: str, epoch: int, length: int, start: int) -> None:
        assert stage.group is not None
        policy = "drop" if stage.drop_last else ends
        ranks, rank = world.share_ranks, world.share_rank
        self.share = Share(length, stage.group, ranks, rank, policy, start)  # type: ignore[arg-type]
        self._before = start // stage.group
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
        number = self._before + step * share.ranks + share.rank
        ticket = Ticket(owner, 0, self._epoch, number, (block.start, block.stop, extra))
        ticket.before = _Step(share, step)
        ticket.after = _Step(share, step + 1)
        return ticket

    def mask(self, ticket: Ticket) -> list[bool] | None:
        block = self.share.block(ticket.before.step)
        return block.mask() if block.filled else None


class _Step(NamedTuple):
    """A mark that is worked out only when somebody asks: most tickets are never asked."""

    share: Share
    step: int


def plain(mark: Mark) -> Mark:
    """The mark as plain data."""
    if type(mark) is _Step:
        return ("p", mark.share.delivered(mark.step))
    if type(mark) is Spot:
        return mark.plain()
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
        # Where samples are regrouped the place is inside a block; its size is for a world that divides the rest.
        ticket.before = ("p", start + at * ranks, stop - at)
        ticket.after = ("p", start + stop * ranks)
        return ticket


class Dealt(_Arithmetic):
    """Positions that somebody else deals out, as (number, payload, mark before, mark after)."""

    def __init__(self, deals: Iterator[tuple[int, Any, Mark, Mark]], epoch: int) -> None:
        self._deals = deals
        self._epoch = epoch
        self.ended = False

    def next(self, owner: Any) -> Ticket | None:
        deal = next(self._deals, None)
        if deal is None:
            self.ended = True
            return None
        number, payload, before, after = deal
        ticket = Ticket(owner, 0, self._epoch, number, payload)
        ticket.before, ticket.after = before, after
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

    def __init__(
        self, strands: int, epoch: int, depth: int, mark: Mark = None, free: Callable[[Block], None] | None = None
    ) -> None:
        self._epoch = epoch
        self._free = free
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

    def mask(self, ticket: Ticket) -> list[bool] | None:
        return None

    def _next_block(self, s: int) -> None:
        block, state = self._queues[s].popleft()
        if not block.count and self._free is not None:
            self._free(block)  # the end of a strand has no samples, and nobody else will
        self._taken[s] = max(0, self._taken[s] - block.count)
        self._states[s] = state
        self._numbers[s] += 1

    def mark(self) -> Mark:
        saved = [
            (self._states[s], self._numbers[s], self._taken[s], self._over[s] and not self._queues[s])
            for s in range(len(self._queues))
        ]
        return ("s", self._turn % len(saved), saved)
