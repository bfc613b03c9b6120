"""Deaths: what a worker was doing when it died, and how often one sample may do that.

The header of a slot names the sample at hand (see `child`). Only the ticket that was running is held against anyone:
two deaths at the same sample make it poison.
"""

import struct
from collections import Counter
from collections.abc import Iterable

from headrace.engine.program import Program
from headrace.engine.wire.messages import BEGUN, PACKING, Ticket
from headrace.errors import PoisonSample

STREAM_DEATHS = 5
"""Deaths at one place of a stream before it is given up: which sample it was is not known there."""
_PLACE = struct.Struct("<qqq")


class Deaths:
    """What deaths have been held against which samples."""

    def __init__(self, on_poison: str) -> None:
        self._on_poison = on_poison
        self._struck: Counter[tuple[int, int, int]] = Counter()

    def strike(self, ticket: Ticket, why: str) -> None:
        """The ticket was running when its worker died: note the sample; at the second time it is poison."""
        _, position, begun = _PLACE.unpack_from(ticket.slot.map, 0)
        # Which sample of a ticket it was that could not be packed is not known: that is held against the ticket.
        sample = (ticket.stage, ticket.epoch, position if begun == BEGUN else -1 - ticket.number)
        self._struck[sample] += 1
        if self._struck[sample] < 2 or ticket.strand is not None:
            if self._struck[sample] > STREAM_DEATHS:
                raise PoisonSample(
                    f"the worker that reads a stream {why}, {self._struck[sample]} times near sample {position}; "
                    f"look at it with workers=0"
                )
            return
        if begun == PACKING:
            raise PoisonSample(
                f"a worker {why}, twice, while it was packing what it had made ({describe(ticket)}): a sample there "
                f"ends the process that pickles it; look at it with workers=0, or return plain data and arrays"
            )
        if self._on_poison == "raise":
            raise PoisonSample(
                f"the sample at position {position} ended its worker twice: it {why} ({describe(ticket)}); "
                f"look at it with workers=0, or leave such samples out with on_poison='skip'"
            )
        ticket.avoid = (*ticket.avoid, position)


def running(tickets: Iterable[Ticket]) -> Ticket | None:
    """The one that has begun a sample and is not answered: queued tickets, and finished ones, never count."""
    for ticket in tickets:
        seq, _, begun = _PLACE.unpack_from(ticket.slot.map, 0)
        if seq == ticket.seq and begun in (BEGUN, PACKING):
            return ticket
    return None


def doing(tickets: Iterable[Ticket], program: Program) -> str:
    """What a worker with these tickets is doing now."""
    tickets = list(tickets)
    ticket = running(tickets)
    if ticket is None:
        return f"{describe(tickets[0])}, not begun"
    _, position, begun = _PLACE.unpack_from(ticket.slot.map, 0)
    where = f"at position {position}" if begun == BEGUN else "packing its results"
    return f"{where}, {describe(ticket)}: {program.ops(ticket.stage)}"


def describe(ticket: Ticket) -> str:
    return f"ticket {ticket.number} of stage {ticket.stage} in epoch {ticket.epoch}"
