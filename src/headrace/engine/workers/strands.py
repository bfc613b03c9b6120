"""Where each strand of a stream stands after its last answer, as far as the consumer has been told.

A strand goes on where a worker has it open. A worker that has not (its predecessor died) opens it from the last state
known: the one that the ticket brings, out of a snapshot, or else the one that came with the block before.
"""

from headrace.engine.wire.codec import pack_state
from headrace.engine.wire.messages import Ticket


class StrandStates:
    """States of the strands of one epoch."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, bytes]] = {}
        """By epoch and strand: the number of its next block, and the state before that."""

    def payload(self, ticket: Ticket) -> tuple[int, bytes | None]:
        """What is sent: the strand, and its state before the ticket's block as far as that is known."""
        strand, state = ticket.payload
        number, known = self._known.get((ticket.epoch, strand), (-1, None))
        if state is None and number == ticket.number:
            state = known
        return strand, state if state is None or type(state) is bytes else pack_state(state)

    def note(self, ticket: Ticket, state: bytes) -> None:
        """The ticket's block is there, and its strand stands here now."""
        self._known[ticket.epoch, ticket.payload[0]] = (ticket.number + 1, state)

    def clear(self) -> None:
        """A new epoch begins."""
        self._known.clear()
