"""Replies: out of what a worker has said, whichever way it came; and back into words for whoever asks a shared pool."""

from headrace.engine.wire.failures import load_error, pack_error
from headrace.engine.wire.messages import (
    FAILED,
    INLINE,
    MANY,
    SLOTTED,
    Failed,
    Inline,
    Many,
    Reply,
    Result,
    Slotted,
    Ticket,
)
from headrace.memory.arena import Slot
from headrace.tracebacks import Call, calls, put_back


class RemoteTraceback(Exception):
    """The traceback of what led to an error, as it was in the worker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def remote(packed: bytes, led: str, made: tuple[Call, ...]) -> BaseException:
    """The error itself, with the calls that it went through in the worker, caused by what caused it there."""
    error = load_error(packed)
    put_back(error, made)
    if led:
        error.__cause__ = RemoteTraceback(led)
    return error


def reply_to(ticket: Ticket, kind: int, fields: tuple[object, ...], slot: Slot | None, worker: int) -> Reply:
    """The reply that a result makes; `slot` is where its arrays or samples lie, if they are here."""
    reply = Reply(ticket)
    reply.worker = worker
    # (By the number of the kind, the most frequent first: this is done for every ticket.)
    if kind == INLINE:
        small = Inline._make(fields)
        reply.outputs, reply.count = small.head, 1 if small.alone else -1
        reply.skipped, reply.seconds = small.skipped, small.seconds
    elif kind == SLOTTED:
        large = Slotted._make(fields)
        reply.outputs, reply.count = large.head, 1 if large.alone else -1
        reply.spans, reply.bytes, reply.slot = large.spans, large.size, slot
        reply.skipped, reply.seconds = large.skipped, large.seconds
    elif kind == MANY:
        many = Many._make(fields)
        reply.count, reply.bytes, reply.slot = many.samples, many.size, slot
        reply.skipped, reply.seconds = many.skipped, many.seconds
        if slot is not None:
            slot.table = (*many.table, ticket.seq)
        if many.strand is not None:
            reply.ended, reply.state = many.strand
    else:
        reply.error = remote(*Failed._make(fields))
    return reply


def result_of(reply: Reply) -> tuple[int, Result]:
    """The kind and the result that make this reply: what `reply_to` was told."""
    if reply.error is not None:
        cause = reply.error.__cause__
        led = cause.text if isinstance(cause, RemoteTraceback) else ""
        return FAILED, Failed(pack_error(reply.error), led, calls(reply.error))
    assert reply.seconds
    told = (reply.skipped, reply.seconds)
    if reply.slot is None:
        return INLINE, Inline(reply.outputs, reply.count == 1, *told)
    if reply.outputs is not None:
        return SLOTTED, Slotted(reply.outputs, reply.spans, reply.bytes, reply.count == 1, *told)
    offset, size, _ = reply.slot.table
    strand = None if reply.state is None else (reply.ended, reply.state)
    return MANY, Many(reply.count, (offset, size), reply.bytes, *told, strand)
