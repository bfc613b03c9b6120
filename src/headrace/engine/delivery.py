"""Delivery: from a reply to the outputs that the caller gets, and where the epoch stands after each of them.

Where batches come as they are made (ordered=False), it stands at the oldest one that is missing:

    tickets     0  1  2  3  4  5          delivered: 0 1 3 4
                      ^                   the place: before ticket 2, the oldest one that was not delivered,
                         +  +             and 3 and 4, counted from there (1 and 2), are ahead of it

A run that goes on from such a place begins at the oldest one and passes over those that were ahead.
"""

from typing import Any, NamedTuple

from headrace.engine.feeds.block import AssembledReply
from headrace.engine.feeds.place import Feed
from headrace.engine.places import DeliveredAhead, RunPlace
from headrace.engine.wire import codec
from headrace.engine.wire.failures import ordinary
from headrace.engine.wire.messages import Reply, Ticket
from headrace.memory.arena import Arena


class AheadMark(NamedTuple):
    """A mark: where the epoch stands, the batches delivered ahead of it, and how many samples were left out before."""

    mark: object
    ahead: DeliveredAhead | None
    kept: int


def place_after(feed: Feed, ticket: Ticket, taken: int, passed: int | None = None) -> RunPlace:
    """Where the epoch stands after `taken` outputs of a ticket; `feed` is that of the last stage.

    `passed`: how many of the errors among them have been raised; None: those that an output has followed.
    """
    breaks = ticket.breaks
    if passed is None:
        passed = sum(before < taken for before, _ in breaks)
    after = taken >= ticket.many and passed == len(breaks)
    mark, gone = (ticket.after, 0) if after else (ticket.before, taken)
    kept, ahead = ticket.kept[after], None
    if passed and not after and (behind := breaks[passed - 1][1]) is not None:
        mark, gone = behind, taken - breaks[passed - 1][0]
    if isinstance(mark, AheadMark):
        mark, ahead, kept = mark
    return RunPlace(None if mark is None else feed.at(mark), gone, kept, ahead=ahead)


class AnyOrder:
    """Keeps track of tickets of the last stage that are delivered in any order. Each has one output at most."""

    def __init__(self, at: RunPlace, size: int) -> None:
        """`size`: samples of one ticket. A place counts tickets, so it holds for tickets of this size only."""
        self._size = size
        self._gone = set(() if at.ahead is None else at.ahead.tickets)
        """Tickets after the oldest one that are delivered."""
        self._begun: dict[int, Ticket] = {}
        """Tickets that are issued and not delivered, by their order."""
        self._oldest = 0
        """The oldest ticket that is not delivered."""
        self._last = -1
        """The ticket issued last."""
        self._now = self._end = AheadMark(at.place, at.ahead, 0)
        """Where the epoch stands now, and where it stands when all issued tickets are delivered."""

    def begins(self, ticket: Ticket) -> bool:
        """Take note of a ticket that is issued; False if it was delivered before the epoch went on here."""
        self._begun[ticket.order] = ticket
        self._last, self._end = ticket.order, AheadMark(ticket.after, None, ticket.kept[1])
        return ticket.order not in self._gone

    def delivers(self, ticket: Ticket, kept: tuple[int, int]) -> None:
        """Take note of a ticket that is delivered now, and mark on it where the epoch stands before and after that."""
        del self._begun[ticket.order]
        if ticket.order >= self._oldest:
            self._gone.add(ticket.order)
        # (Not past tickets that are not issued yet: their marks are not known.)
        while self._oldest in self._gone and self._oldest <= self._last:
            self._gone.remove(self._oldest)
            self._oldest += 1
        ahead = None
        if self._gone:
            ahead = DeliveredAhead(self._size, tuple(sorted(order - self._oldest for order in self._gone)))
        oldest = self._begun.get(self._oldest)
        reached = self._end if oldest is None else AheadMark(oldest.before, None, oldest.kept[0])
        until, self._now = self._now, reached._replace(ahead=ahead)
        before, after = kept[0] - ticket.kept[0], kept[1] - ticket.kept[1]
        ticket.before = until._replace(kept=until.kept + before)
        ticket.after = self._now._replace(kept=self._now.kept + after)


def raisable(error: BaseException) -> BaseException:
    """The error of a ticket as it can be raised: a StopIteration would end the epoch in silence, with data missing."""
    return error if not isinstance(error, StopIteration) else ordinary("code of the pipe raised StopIteration", error)


def open_many(reply: Reply | AssembledReply, arena: Arena) -> list[Any]:
    """All outputs of a ticket."""
    if isinstance(reply, AssembledReply):
        return reply.open(arena)
    if reply.count == 0:
        return []
    outputs = codec.open_reply(reply, arena)
    return [outputs] if reply.count == 1 and not isinstance(reply.outputs, list) else outputs
