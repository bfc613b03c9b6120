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


@dataclass(eq=False)
class Dealt(Feed):
    """Tickets from an iterator of deals."""

    _deals: Iterator[Deal]
    _epoch: int
    _place: Callable[[int, int], Place]
    """Makes a place of a mark."""
    _skips: dict[Ticket, int] = field(default_factory=dict)

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

    def entries(self, reply: Reply, block: Block) -> Iterable[Entry]:
        skip = min(block.count, self._skips.pop(reply.ticket, 0))
        return self._pieces(reply.ticket, block, skip)
