"""Dealt: tickets of positions that an iterator of `Deal`s hands out: in turns, from a shared counter, or by cost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.feeds.place import Feed, Place
from headrace.engine.wire.messages import Reply, Ticket


class Deal(NamedTuple):
    """The positions of one ticket."""

    number: int
    payload: tuple[int, int, tuple[int, ...]]
    """Positions first to stop, then single ones."""
    before: int
    """How far the iterator of deals is before this one (in a unit of its own)."""
    after: int
    """The same after this one."""
    skip: int = 0
    """How many of its outputs were delivered before the epoch went on here."""


class DealtMark(NamedTuple):
    """A mark: how far the iterator of deals is, and how many outputs of the next ticket were delivered."""

    stands: int
    gone: int


class _SplitTicket:
    """A ticket that failed, split into tickets of one sample each."""

    def __init__(self, ticket: Ticket, parts: list[Ticket], skip: int) -> None:
        self.last = parts[-1]
        self.parts = set(parts)
        assert isinstance(ticket.before, DealtMark)
        self._before, self._after = ticket.before.stands, ticket.after
        self._skip = skip
        self._gone = 0

    def entry(self, part: Ticket, block: Block) -> Entry:
        """The outputs of the next sample."""
        skip = min(block.count, self._skip)
        before, self._gone, self._skip = self._gone, self._gone + block.count - skip, self._skip - skip
        after = self._after if part is self.last else DealtMark(self._before, self._gone)
        return Entry(block, skip, block.count, DealtMark(self._before, before), after)


@dataclass(eq=False)
class Dealt(Feed):
    """Tickets from an iterator of deals."""

    _deals: Iterator[Deal]
    _epoch: int
    _place: Callable[[int, int], Place]
    """Makes a place of a mark."""
    single: bool = False
    """Its samples do not belong together: a ticket may be split."""
    _skips: dict[Ticket, int] = field(default_factory=dict)
    _split: _SplitTicket | None = None

    def next(self, owner: object) -> Ticket | None:
        deal = next(self._deals, None)
        if deal is None:
            self.ended = True
            return None
        ticket = Ticket(owner, 0, self._epoch, deal.number, deal.payload)
        ticket.before, ticket.after = DealtMark(deal.before, 0), DealtMark(deal.after, 0)
        if deal.skip:
            self._skips[ticket] = deal.skip
        return ticket

    def at(self, mark: object) -> Place:
        return self._place(*mark) if isinstance(mark, DealtMark) else super().at(mark)

    def split(self, ticket: Ticket) -> list[Ticket]:
        start, stop, extra = ticket.payload
        positions = [*range(start, stop), *extra]
        if not self.single or len(positions) < 2:
            return []
        parts = [Ticket(ticket.owner, 0, self._epoch, p, (p, p + 1, ())) for p in positions]
        self._split = _SplitTicket(ticket, parts, self._skips.pop(ticket, 0))
        return parts

    def entries(self, reply: Reply, block: Block) -> Iterable[Entry]:
        if self._split is not None and reply.ticket in self._split.parts:
            return (self._split.entry(reply.ticket, block),)
        skip = min(block.count, self._skips.pop(reply.ticket, 0))
        return (Entry(block, skip, block.count, reply.ticket.before, reply.ticket.after),)
