"""What a ticket and its answer look like on the way to a Ray actor and back: plain objects that a store can carry."""

import time
from typing import Any, NamedTuple

from headrace.engine.wire import codec
from headrace.engine.wire.messages import SLOTTED, Reply, Result, SampleTable, Slotted, Ticket
from headrace.engine.workers.replies import reply_to
from headrace.memory.arena import HEADER, Arena

PackedSamples = tuple[SampleTable, Any]
"""Many samples: an array of bytes that looks like a slot, behind the place of its table."""


class RayTicket(NamedTuple):
    """A ticket on its way to an actor."""

    seq: int
    stage: int
    epoch: int
    number: int
    payload: Any
    """A stage that reads samples of another says them as (which of the packs beside the ticket, first, stop)."""
    avoid: tuple[int, ...]
    watcher: Any
    """Whoever is told each position beforehand (`deaths`), or None."""


class RayAnswer(NamedTuple):
    """The answer to a ticket."""

    kind: int
    result: Result
    beside: Any = None
    """The arrays of a result that is not in a slot that was lent; the packed samples of a `Many` that travels."""


def reply_of(ticket: Ticket, worker: int, answer: RayAnswer, arena: Arena) -> tuple[Reply, bool]:
    """The reply, its arrays in a slot; and whether the slot that was lent was large enough but not used."""
    kind, result, beside = answer
    lent, ticket.slot = ticket.slot, None
    slot, missed = None, False
    if isinstance(result, Slotted) and beside is None:
        slot = lent
    elif lent is not None:
        arena.give_back(lent)
    if isinstance(result, Slotted) and beside is not None:
        raw = [memoryview(array) for array in beside]
        size = codec.Writer(memoryview(b""), 0, HEADER).need(raw, 0)
        slot = arena.lend(size)
        spans = tuple(codec.Writer(slot.view, slot.address, HEADER).write(raw))
        result = result._replace(spans=spans, size=size)
        missed = lent is not None and size <= lent.size
    reply = reply_to(ticket, kind, result, slot, worker)
    if reply.seconds:
        # When it began, on this machine's clock: that of another one says nothing here.
        took, by_op, _, reads = reply.seconds
        reply.seconds = (took, by_op, time.perf_counter() - took, reads)
    if kind != SLOTTED and beside is not None:
        fill(reply, beside, arena)
    return reply, missed


def fill(reply: Reply, packed: PackedSamples, arena: Arena) -> None:
    """Put packed samples into a slot of the reply."""
    (offset, size), image = packed
    reply.slot = slot = arena.lend(image.nbytes)
    slot.view[HEADER : image.nbytes] = memoryview(image)[HEADER:]
    slot.table = (offset, size, reply.ticket.seq)
