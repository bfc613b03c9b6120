"""Calls: what is under way at workers beyond this process, and replies out of what comes back."""

import time
from typing import Any

from headrace.engine.wire import codec
from headrace.engine.wire.messages import INLINE, MANY, PLACED, SLOTTED, Reply, Ticket
from headrace.engine.workers.ray.lineage import Remote
from headrace.engine.workers.remote import remote
from headrace.memory.arena import HEADER, Arena


class Worker:
    """One worker and what it has to do."""

    __slots__ = (
        "actor", "calls", "dump", "gone", "load", "near", "node", "number", "outbox", "pid", "ready", "retiring",
    )  # fmt: skip

    def __init__(self, number: int, actor: Any) -> None:
        self.number = number
        self.actor = actor
        self.calls: dict[Any, Call] = {}
        """In the order in which it runs them."""
        self.outbox: list[Ticket] = []
        self.load = 0
        """Tickets in calls and in the outbox."""
        self.ready = False
        self.retiring = False
        self.gone = False
        self.near = False
        """It can write into slots of the consumer's."""
        self.pid, self.dump, self.node = 0, -1, ""

    @property
    def doing(self) -> str:
        """What it runs, of the calls that it was given."""
        first = next(iter(self.calls.values()))
        return describe(first.tickets[0]) if first.tickets else "not started yet: is the cluster full?"


class Call:
    """A call under way: its tickets (none: the worker starts), and where samples will be that stay in the store."""

    __slots__ = ("early", "fetch", "ref", "samples", "tickets", "worker")

    def __init__(self, worker: Worker, ref: Any, tickets: list[Ticket], samples: Any = None) -> None:
        self.worker = worker
        self.ref = ref
        self.tickets = tickets
        self.samples = samples
        self.early: Any = None
        """An answer that came before that of the strand's block before it."""
        self.fetch: tuple[Reply, Remote] | None = None
        """The reply is known; the samples are on their way to the consumer."""

    @property
    def strand(self) -> tuple[int, int] | None:
        """Epoch and number of the strand whose block this is."""
        first = self.tickets[0] if self.tickets else None
        return None if first is None or first.strand is None else (first.epoch, first.strand)

    @property
    def in_turn(self) -> bool:
        """No earlier block of the same strand is still expected."""
        strand = self.strand
        return strand is None or next(c for c in self.worker.calls.values() if c.strand == strand) is self


def reply_of(ticket: Ticket, worker: Worker, body: tuple[Any, ...], arena: Arena) -> Reply:
    """A reply out of what a servant said; large buffers are copied into a slot, unless they were made in one."""
    reply = Reply(ticket)
    reply.worker = worker.number
    kind = body[0]
    lent, ticket.slot = ticket.slot, None
    if lent is not None and kind != PLACED:
        arena.give_back(lent)
    if kind == INLINE:
        _, reply.outputs, alone, reply.skipped, seconds = body
        reply.count = 1 if alone else -1
    elif kind == SLOTTED:
        _, reply.outputs, arrays, alone, reply.skipped, seconds = body
        reply.count = 1 if alone else -1
        raw = [memoryview(array) for array in arrays]
        reply.bytes = codec.Writer(memoryview(b""), 0, HEADER).need(raw, 0)
        reply.slot = slot = arena.lend(reply.bytes)
        reply.spans = tuple(codec.Writer(slot.view, slot.address, HEADER).write(raw))
        if lent is not None and reply.bytes <= lent.size:
            worker.near = False  # it would have fitted: the slot is out of the worker's reach
    elif kind == PLACED:
        _, reply.outputs, reply.spans, reply.bytes, alone, reply.skipped, seconds = body
        reply.count = 1 if alone else -1
        reply.slot = lent
    elif kind == MANY:
        _, reply.count, packed, reply.skipped, seconds, extra, reply.bytes = body
        if extra is not None:
            reply.ended, reply.state = extra
        if packed is not None:
            fill(reply, packed, arena)
    else:
        _, error, text = body
        reply.error = remote(error, text)
        return reply
    # When it began, on this machine's clock: that of another one says nothing here.
    reply.seconds = (*seconds, time.perf_counter() - seconds[0])
    return reply


def fill(reply: Reply, packed: Any, arena: Arena) -> None:
    """Packed samples into a slot of the reply."""
    (offset, size), image = packed
    reply.slot = slot = arena.lend(image.nbytes)
    slot.view[HEADER : image.nbytes] = memoryview(image)[HEADER:]
    slot.table = (offset, size, reply.ticket.seq)


def name_of(ticket: Ticket) -> tuple[int, int, int]:
    """What a ticket is called in every run."""
    return ticket.stage, ticket.epoch, ticket.number


def describe(ticket: Ticket) -> str:
    return f"ticket {ticket.number} of stage {ticket.stage} in epoch {ticket.epoch}"
