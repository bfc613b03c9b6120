"""Deaths: how a worker ended, what it was doing then, and how often one sample may do that.

A sample that was at hand at two deaths is **poison**: one error that names it, or, with on_poison="skip", the ticket
runs again without it. Only the ticket that was running counts, never those that were queued.

A worker process writes the position at hand into the header of its ticket's slot, where it can be read after a death.
Where no memory can be read (Ray), the first death in a ticket names no sample; from then on the ticket is *watched*:
its worker tells somebody else each position beforehand. Which sample of a stream it was is not known: a stream is
given up after several deaths in the same block.
"""

import signal
import struct
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headrace.engine.program import Program
from headrace.engine.wire.messages import BEGUN, PACKING, Ticket
from headrace.errors import PoisonSample

STREAM_DEATHS = 5
"""Deaths in one block of a stream before it is given up."""
EARLY_DEATHS = 3
"""Deaths before any worker was ready, after which starting is given up."""
CAUSES = (
    "Likely causes: out of memory (see dmesg), a crash in native code, or a call to os._exit() in the dataset; "
    "workers=0 runs everything in this process and shows where"
)
_HEADER = struct.Struct("<qqq")


class At(NamedTuple):
    """Where a ticket was when its worker died."""

    position: int
    packing: bool
    """All its samples were made, and the reply was being packed."""


class Deaths:
    """What deaths have been held against which samples."""

    def __init__(self, on_poison: str) -> None:
        self._on_poison = on_poison
        self._blocks: Counter[tuple[int, int, int | None, int]] = Counter()
        self._samples: Counter[tuple[int, int, int]] = Counter()

    def watched(self, ticket: Ticket) -> bool:
        """A worker has died while it ran this ticket."""
        return _name(ticket) in self._blocks

    def strike(self, ticket: Ticket, at: At | None, why: str) -> None:
        """The ticket was running when its worker died, and where, if that is known: the second time it is poison."""
        name = _name(ticket)
        self._blocks[name] += 1
        if ticket.strand is not None:
            if self._blocks[name] > STREAM_DEATHS:
                near = "" if at is None else f", near sample {at.position}"
                raise PoisonSample(
                    f"the worker that reads a stream {why}, {self._blocks[name]} times in {ticket}{near}; "
                    f"look at it with workers=0"
                )
            return
        if at is None:
            return
        # Which sample of a ticket it was that could not be packed is not known: that is held against the ticket.
        sample = (ticket.stage, ticket.epoch, -1 - ticket.number if at.packing else at.position)
        self._samples[sample] += 1
        if self._samples[sample] < 2:
            return
        if at.packing:
            raise PoisonSample(
                f"a worker {why}, twice, while it was packing what it had made ({ticket}): a sample there ends the "
                f"process that pickles it; look at it with workers=0, or return plain data and arrays"
            )
        if self._on_poison == "raise":
            raise PoisonSample(
                f"the sample at position {at.position} ended its worker twice: it {why} ({ticket}); "
                f"look at it with workers=0, or leave such samples out with on_poison='skip'"
            )
        ticket.avoid = (*ticket.avoid, at.position)


def _name(ticket: Ticket) -> tuple[int, int, int | None, int]:
    return ticket.stage, ticket.epoch, ticket.strand, ticket.number


def at_hand(tickets: Iterable[Ticket]) -> tuple[Ticket, At] | None:
    """The ticket that has begun a sample and is not answered, as its slot's header says: queued ones never count."""
    for ticket in tickets:
        assert ticket.slot is not None
        seq, position, begun = _HEADER.unpack_from(ticket.slot.map, 0)
        if seq == ticket.seq and begun in (BEGUN, PACKING):
            return ticket, At(position, begun == PACKING)
    return None


def doing(tickets: Iterable[Ticket], program: Program) -> str:
    """What a worker with these tickets is doing now."""
    tickets = list(tickets)
    found = at_hand(tickets)
    if found is None:
        return f"{tickets[0]}, not begun"
    ticket, at = found
    where = "packing its results" if at.packing else f"at position {at.position}"
    return f"{where}, {ticket}: {program.ops(ticket.stage)}"


def describe_end(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def replaced_because(timeout: float | None) -> str:
    """How a worker ended that was killed because it was stuck."""
    return f"gave no answer within {timeout} seconds and was killed by on_stuck='replace'"
