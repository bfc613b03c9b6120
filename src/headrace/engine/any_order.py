"""Any order: where an epoch stands whose batches come as they are made (ordered=False).

    tickets     0  1  2  3  4  5          delivered: 0 1 3 4
                      ^                   the place: before ticket 2, the oldest one that was not delivered,
                         +  +             and 3 and 4, counted from there (1 and 2), are ahead of it

Whoever goes on from such a place begins at the oldest one and passes over those that were ahead.
"""

from typing import NamedTuple

from headrace.engine.delivery import Delivery
from headrace.engine.feeds.place import Placed
from headrace.engine.places import Overtaken, RunPlace
from headrace.engine.wire.messages import Ticket


class _Now(NamedTuple):
    """Where the epoch stands, what is ahead of that, and how many samples earlier stages have left out before it."""

    place: Placed | None
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

    def delivery(self, ticket: Ticket, kept: tuple[int, int]) -> Delivery:
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
        return OutOfOrder(ticket, kept, until, then)


class OutOfOrder(Delivery):
    """A ticket that may have come before its turn."""

    __slots__ = ("_then", "_until")

    def __init__(self, ticket: Ticket, kept: tuple[int, int], until: _Now, then: _Now) -> None:
        super().__init__(ticket, (kept[0] - ticket.kept[0], kept[1] - ticket.kept[1]))
        self._until = until
        """Where the epoch stands until it is delivered,"""
        self._then = then
        """and after that."""

    def place(self, taken: int) -> RunPlace:
        delivered = taken >= self.many
        now = self._then if delivered else self._until
        place = None if now.place is None else now.place.place()
        return RunPlace(place, 0, now.kept + self._kept[delivered], ahead=now.ahead)
