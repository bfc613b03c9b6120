"""Replies: out of what a worker has said, whichever way it came; and back into words for whoever asks a shared pool."""

from headrace.engine.wire.failures import load_error, pack_error
from headrace.engine.wire.messages import (
    FAILED,
    INLINE,
    MANY,
    RESULTS,
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


class RemoteTraceback(Exception):
    """The traceback of an error, as it was in the worker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def remote(packed: bytes, text: str) -> BaseException:
    """The error itself, caused by the traceback that it had in the worker."""
    error = load_error(packed)
    error.__cause__ = RemoteTraceback(text)
    return error


def reply_to(ticket: Ticket, kind: int, fields: tuple[object, ...], slot: Slot | None, worker: int) -> Reply:
    """The reply that a result makes; `slot` is where its arrays or samples lie, if they are here."""
    reply = Reply(ticket)
    reply.worker = worker
    result: Result = RESULTS[kind]._make(fields)
    if isinstance(result, Failed):
        reply.error = remote(*result)
        return reply
    reply.skipped, reply.seconds = result.skipped, result.seconds
    if isinstance(result, Many):
        reply.count, reply.bytes, reply.slot = result.samples, result.size, slot
        if slot is not None:
            slot.table = (*result.table, ticket.seq)
        if result.strand is not None:
            reply.ended, reply.state = result.strand
        return reply
    reply.outputs, reply.count = result.head, 1 if result.alone else -1
    if isinstance(result, Slotted):
        reply.spans, reply.bytes, reply.slot = result.spans, result.size, slot
    return reply


def result_of(reply: Reply) -> tuple[int, Result]:
    """The kind and the result that make this reply: what `reply_to` was told."""
    if reply.error is not None:
        cause = reply.error.__cause__
        return FAILED, Failed(pack_error(reply.error), cause.text if isinstance(cause, RemoteTraceback) else "")
    assert reply.seconds
    told = (reply.skipped, reply.seconds)
    if reply.slot is None:
        return INLINE, Inline(reply.outputs, reply.count == 1, *told)
    if reply.outputs is not None:
        return SLOTTED, Slotted(reply.outputs, reply.spans, reply.bytes, reply.count == 1, *told)
    offset, size, _ = reply.slot.table
    strand = None if reply.state is None else (reply.ended, reply.state)
    return MANY, Many(reply.count, (offset, size), reply.bytes, *told, strand)
