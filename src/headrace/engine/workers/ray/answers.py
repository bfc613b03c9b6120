"""A ticket and its answer on the way to a Ray actor and back: plain objects that the object store can carry."""

import time
from typing import Any, NamedTuple

from headrace.engine.wire.messages import Failed, Reply, Result, SampleTable, Ticket
from headrace.engine.workers.remote import reply_to
from headrace.memory.arena import HEADER, Arena, Slot

PackedSamples = tuple[SampleTable, Any]
"""Many samples: where their table lies in a slot, and a copy of that slot's memory."""


class RayTicket(NamedTuple):
    """A ticket on its way to an actor."""

    seq: int
    stage: int
    epoch: int
    number: int
    payload: Any
    """A stage that reads samples of another names them: (index of the pack beside the ticket, first, stop)."""
    avoid: tuple[int, ...]
    watcher: Any
    """The actor that each position is reported to before it is run (`deaths`), or None."""


class RayAnswer(NamedTuple):
    """The answer to a ticket."""

    kind: int
    result: Result | Failed
    image: Any = None
    """The memory of the result, as it would lie in a slot, if it was not made in one that was lent."""


def reply_of(ticket: Ticket, worker: int, answer: RayAnswer, arena: Arena) -> tuple[Reply, bool]:
    """The reply, its arrays in a slot; and whether the slot that was lent was large enough but was not used."""
    kind, result, image = answer
    slot, ticket.slot = ticket.slot, None
    missed = slot is not None and image is not None and image.nbytes <= slot.size
    if slot is not None and (image is not None or isinstance(result, Failed) or not result.size):
        arena.give_back(slot)
        slot = None
    if image is not None:
        slot = copied(image, arena)
    reply = reply_to(ticket, kind, result, slot, worker)
    if reply.seconds:
        # When it began, by this machine's clock: the clock of another node says nothing here.
        took, by_op, _, reads = reply.seconds
        reply.seconds = (took, by_op, time.perf_counter() - took, reads)
    return reply, missed


def copied(image: Any, arena: Arena) -> Slot:
    """A slot into which this image is copied."""
    slot = arena.lend(image.nbytes)
    slot.view[HEADER : image.nbytes] = memoryview(image)[HEADER:]
    return slot
