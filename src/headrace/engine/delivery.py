"""Delivery: from a reply to the outputs that the caller gets, and where the epoch stands after each of them.

Where batches come as they are made (ordered=False), it stands at the oldest one that is missing:

    tickets     0  1  2  3  4  5          delivered: 0 1 3 4
                      ^                   the place: before ticket 2, the oldest one that was not delivered,
                         +  +             and 3 and 4, counted from there (1 and 2), are ahead of it

Whoever goes on from such a place begins at the oldest one and passes over those that were ahead.
"""

from typing import Any, NamedTuple

from headrace.engine.feeds.block import Assembled
from headrace.engine.feeds.place import Feed
from headrace.engine.places import Overtaken, RunPlace
from headrace.engine.wire import codec
from headrace.engine.wire.messages import Reply, Ticket
from headrace.memory.arena import Arena


class Delivery:
    """A ticket whose outputs are being handed out; it can say where the epoch stands after so many of them."""

    __slots__ = ("_feed", "_kept", "many", "ticket")

    def __init__(self, feed: Feed, ticket: Ticket, kept: tuple[int, int]) -> None:
        self._feed = feed
        """Of the last stage."""
        self.ticket: Ticket | None = ticket
        self._kept = kept
        """Samples left out before it and with it, of those that whoever goes on from there will not meet again."""
        self.many = 1
        """How many outputs it has."""

    def place(self, taken: int) -> RunPlace:
        assert self.ticket is not None
        if taken >= self.many:
            return RunPlace(self._feed.at(self.ticket.after), 0, self._kept[1])
        return RunPlace(self._feed.at(self.ticket.before), taken, self._kept[0])


class Beginning(Delivery):
    """Before the first ticket."""

    __slots__ = ("_start",)

    def __init__(self, at: RunPlace) -> None:
        self.ticket, self._start = None, at

    def place(self, taken: int) -> RunPlace:
        return self._start


class _Now(NamedTuple):
    """A mark of where the epoch stands, what is ahead of that, and how many samples earlier stages have left out."""

    mark: object
    ahead: Overtaken | None
    kept: int


class AnyOrder:
    """The tickets of the last stage that were delivered before their turn. Each has one output at most."""

    def __init__(self, at: RunPlace, size: int) -> None:
        """`size`: samples of one ticket. A place counts tickets, so it is one for these only."""
        self._size = size
        self._gone = set(() if at.ahead is None else at.ahead.tickets)
        self._begun: dict[int, Ticket] = {}
        """By their order: issued, and not delivered."""
        self._oldest = 0
        self._now = _Now(at.place, at.ahead, 0)

    def begins(self, ticket: Ticket) -> bool:
        """Take note of a ticket that is issued; False if it was delivered before the epoch went on here."""
        self._begun[ticket.order] = self._last = ticket
        return ticket.order not in self._gone

    def delivery(self, feed: Feed, ticket: Ticket, kept: tuple[int, int]) -> Delivery:
        """This ticket is being delivered."""
        del self._begun[ticket.order]
        if ticket.order >= self._oldest:
            self._gone.add(ticket.order)
        # (Not past those that are not issued yet: where they stand is not known.)
        while self._oldest in self._gone and self._oldest <= self._last.order:
            self._gone.remove(self._oldest)
            self._oldest += 1
        ahead = None
        if self._gone:
            ahead = Overtaken(self._size, tuple(sorted(order - self._oldest for order in self._gone)))
        oldest = self._begun.get(self._oldest)
        then = (
            _Now(self._last.after, ahead, self._last.kept[1])
            if oldest is None
            else _Now(oldest.before, ahead, oldest.kept[0])
        )
        until, self._now = self._now, then
        return OutOfOrder(feed, ticket, kept, until, then)


class OutOfOrder(Delivery):
    """A ticket that may have come before its turn."""

    __slots__ = ("_then", "_until")

    def __init__(self, feed: Feed, ticket: Ticket, kept: tuple[int, int], until: _Now, then: _Now) -> None:
        super().__init__(feed, ticket, (kept[0] - ticket.kept[0], kept[1] - ticket.kept[1]))
        self._until = until
        """Where the epoch stands until it is delivered,"""
        self._then = then
        """and after that."""

    def place(self, taken: int) -> RunPlace:
        delivered = taken >= self.many
        mark, ahead, kept = self._then if delivered else self._until
        place = None if mark is None else self._feed.at(mark)
        return RunPlace(place, 0, kept + self._kept[delivered], ahead=ahead)


def no_stop(error: BaseException) -> BaseException:
    """The error of a ticket as it can be raised: a StopIteration would end the epoch in silence, with data missing."""
    if not isinstance(error, StopIteration):
        return error
    ended = RuntimeError("code of the pipe raised StopIteration")
    for note in getattr(error, "__notes__", ()):
        ended.add_note(note)
    ended.__cause__ = error
    return ended


def open_many(reply: Reply | Assembled, arena: Arena) -> list[Any]:
    """All outputs of a ticket."""
    if isinstance(reply, Assembled):
        return reply.open(arena)
    outputs = codec.open_reply(reply, arena)
    return [outputs] if reply.count == 1 and not isinstance(reply.outputs, list) else outputs
