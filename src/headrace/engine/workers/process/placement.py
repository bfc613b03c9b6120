"""Placement: the slot that a ticket's result is made in.

It is a slot of its own, as large as results of that stage have been; or that of the ticket's first samples, when the
rest of the batch has room behind them: there they need not be copied again (docs/decisions/0005).
"""

from headrace.engine.wire.messages import Ticket
from headrace.memory.arena import SMALLEST, Arena, Slot

GROWS = 1 << 20
"""Bytes of a batch from which on it is worth growing in the slot of its first samples."""


class Placement:
    """Slots of one arena, for the tickets of one program."""

    def __init__(self, arena: Arena, last: int, ordered: bool) -> None:
        self._arena = arena
        self._last = last
        self._ordered = ordered
        self._need: dict[int, int] = {}
        """Bytes that results took, by stage."""
        self._grows = True
        """Batches that are made behind their first samples have these in them, so that only the rest needs room."""

    def give(self, ticket: Ticket) -> Slot:
        """The slot for a ticket that has none."""
        home = self._behind_samples(ticket) if ticket.append_to is not None else None
        ticket.slot = slot = self._arena.lend(self._need.get(ticket.stage, SMALLEST)) if home is None else home
        return slot

    def _behind_samples(self, ticket: Ticket) -> Slot | None:
        """The slot of the ticket's first block, if the rest of the result has room behind the block's samples.

        (Only in order: nobody must need the block any more when the batch is used up. A ticket that avoids a sample
        does not take all of the block.)
        """
        block, ticket.append_to = ticket.append_to, None
        assert block is not None
        need = self._need.get(ticket.stage, 0)
        if need < GROWS or ticket.avoid or not self._ordered or ticket.stage != self._last:
            return None
        slot = block.slot
        if slot is None or slot.spoiled:
            return None
        if self._grows:
            counts = [stop - first for _, first, stop in ticket.payload[0]]
            need = need * sum(counts[1:]) // sum(counts)
        if slot.table[0] - block.end < need:
            self._need[ticket.stage - 1] = max(self._need.get(ticket.stage - 1, 0), block.end + need + SMALLEST)
            return None
        ticket.append_to = block
        return slot

    def take_back(self, ticket: Ticket) -> None:
        """The slot that a ticket was lent is not used; that of a block stays the block's."""
        if ticket.append_to is None and ticket.slot is not None:
            self._arena.give_back(ticket.slot)

    def moved(self, ticket: Ticket, fd: int) -> Slot:
        """The result did not fit: it lies in memory of its own."""
        self.take_back(ticket)
        if ticket.append_to is not None:
            ticket.append_to, self._grows = None, False
        slot = self._arena.adopt(fd)
        self._need[ticket.stage] = max(self._need.get(ticket.stage, 0), slot.size)
        return slot

    def made(self, ticket: Ticket, start: int) -> None:
        """A result lies in the slot of the ticket's first block, from `start` on."""
        block = ticket.append_to
        assert block is not None
        block.slot_given_away = True
        self._grows = start < block.end
