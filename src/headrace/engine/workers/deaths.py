"""Deaths: how a worker ended, what it was doing then, and how often one sample may do that.

A sample that was at hand at two deaths is **poison**: one error that names it, or, with on_poison="skip", the ticket
runs again without it. Only the ticket that was running counts, never those that were queued; and once it is answered,
its samples have done nothing wrong. An op on a whole batch (a collate) is held against the batch, not against a sample.

A worker process writes the position at hand into the header of its ticket's slot, where it can be read after a death.
Where no memory can be read (Ray), the first death in a ticket names no sample; from then on the ticket is *watched*:
its worker tells somebody else each position beforehand. Which sample of a stream it was is not known: a stream is
given up after several deaths in the same block.
"""

import logging
import signal
import struct
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from headrace.engine.program import Program
from headrace.engine.wire.messages import AHEAD, ALONE, BEGUN, GROUPED, PACKING, Ticket, numbered
from headrace.errors import PoisonSample

log = logging.getLogger("headrace")
STREAM_DEATHS = 5
"""Deaths in one block of a stream before it is given up."""
EARLY_DEATHS = 3
"""Deaths before any worker was ready, after which starting is given up."""
CAUSES = (
    "Likely causes: out of memory (see dmesg), a crash in native code, or a call to os._exit() in the dataset; "
    "workers=0 runs everything in this process and shows where"
)
_HEADER = struct.Struct("<qqq")


class DeathPlace(NamedTuple):
    """Where a ticket was when its worker died."""

    position: int
    packing: bool
    """All its samples were made, and the reply was being packed."""
    grouped: bool = False
    """They were, and an op had them all in hand."""
    ahead: bool = False
    """The source was reading all of them in one call."""


class Deaths:
    """What deaths have been held against which samples."""

    def __init__(self, on_poison: str) -> None:
        self._on_poison = on_poison
        self._blocks: Counter[tuple[int, int, int | None, int]] = Counter()
        self._samples: dict[tuple[int, int, int | None, int], Counter[DeathPlace]] = {}
        """Of each ticket that a worker has died in: where."""

    def survived(self, ticket: Ticket) -> None:
        """The ticket is answered."""
        if self._blocks:  # (Asked after every ticket.)
            name = _name(ticket)
            self._blocks.pop(name, None)
            self._samples.pop(name, None)

    def watched(self, ticket: Ticket) -> bool:
        """A worker has died while it ran this ticket."""
        return _name(ticket) in self._blocks

    def blame(self, ticket: Ticket, at: DeathPlace | None, why: str) -> None:
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
        if at is None or at.ahead:
            ticket.avoid = (*ticket.avoid, ALONE)
            return
        if at.packing or at.grouped:
            at = at._replace(position=-1)  # which sample it was is not known: that is held against the ticket
        seen = self._samples.setdefault(name, Counter())
        seen[at] += 1
        if seen[at] < 2:
            return
        if at.packing:
            raise PoisonSample(
                f"a worker {why}, twice, while it was packing what it had made ({ticket}): a sample there ends the "
                f"process that pickles it; look at it with workers=0, or return plain data and arrays"
            )
        if at.grouped:
            if self._on_poison == "raise":
                raise PoisonSample(
                    f"an op on a whole batch ended its worker twice: it {why} ({ticket}); look at it with workers=0, "
                    f"or leave such batches out with on_poison='skip'"
                )
            log.warning(
                "on_poison='skip': a batch whose op ended its worker twice is left out: it %s (%s)", why, ticket
            )
            ticket.avoid = _positions(ticket)
            return
        if self._on_poison == "raise":
            raise PoisonSample(
                f"the sample at position {at.position} ended its worker twice: it {why} ({ticket}); "
                f"look at it with workers=0, or leave such samples out with on_poison='skip'"
            )
        log.warning("on_poison='skip': the sample at position %d is left out: its worker %s, twice", at.position, why)
        ticket.avoid = (*ticket.avoid, at.position)


def _positions(ticket: Ticket) -> tuple[int, ...]:
    """Everything that a batch is made of."""
    first, then, last = ticket.payload
    if isinstance(first, list):  # (references to samples, and their numbers)
        return tuple(islice(numbered(then, last), ticket.inputs()))
    return (*range(first, then), *last)


def _name(ticket: Ticket) -> tuple[int, int, int | None, int]:
    return ticket.stage, ticket.epoch, ticket.strand, ticket.number


def running_ticket(tickets: Iterable[Ticket]) -> tuple[Ticket, DeathPlace] | None:
    """The ticket that has begun a sample and is not answered, as its slot's header says: queued ones never count."""
    for ticket in tickets:
        assert ticket.slot is not None
        seq, position, begun = _HEADER.unpack_from(ticket.slot.map, 0)
        if seq == ticket.seq and begun in (BEGUN, PACKING, GROUPED, AHEAD):
            return ticket, DeathPlace(position, begun == PACKING, begun == GROUPED, begun == AHEAD)
    return None


def describe_work(tickets: Iterable[Ticket], program: Program) -> str:
    """What a worker with these tickets is doing now."""
    tickets = list(tickets)
    found = running_ticket(tickets)
    if found is None:
        return f"{tickets[0]}, not begun"
    ticket, at = found
    where = f"at position {at.position}"
    if at.packing or at.grouped:
        where = "packing its results" if at.packing else "with a whole batch in hand"
    elif at.ahead:
        where = f"reading all samples in one call, from position {at.position} on"
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
