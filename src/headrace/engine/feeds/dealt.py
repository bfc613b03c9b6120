"""Dealt: positions of the head that somebody else deals out: in turns, or by a counter that ranks share."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.feeds.place import Feed, Placed
from headrace.engine.wire.messages import Owner, Reply, Ticket


class Deal(NamedTuple):
    """One ticket's worth of positions."""

    number: int
    payload: tuple[int, int, tuple[int, ...]]
    """Positions first to stop, then single ones."""
    before: Placed
    after: Placed
    skip: int = 0
    """How many of its outputs were delivered before the epoch went on here."""


class Dealt(Feed):
    """Tickets from whoever deals."""

    def __init__(self, deals: Iterator[Deal], epoch: int) -> None:
        self._deals = deals
        self._epoch = epoch
        self._skips: dict[Ticket, int] = {}

    def next(self, owner: Owner) -> Ticket | None:
        deal = next(self._deals, None)
        if deal is None:
            self.ended = True
            return None
        ticket = Ticket(owner, 0, self._epoch, deal.number, deal.payload)
        ticket.before, ticket.after = deal.before, deal.after
        if deal.skip:
            self._skips[ticket] = deal.skip
        return ticket

    def entries(self, reply: Reply, block: Block) -> Iterable[Entry]:
        skip = min(block.count, self._skips.pop(reply.ticket, 0))
        return (Entry(block, skip, block.count, block.before, block.after),)
