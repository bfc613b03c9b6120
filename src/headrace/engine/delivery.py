"""Delivery: from a reply to the outputs that the caller gets, and where the epoch stands after each of them."""

from typing import Any

from headrace.engine.assembled import Assembled
from headrace.engine.places import RunPlace
from headrace.engine.wire import codec
from headrace.engine.wire.messages import Reply, Ticket
from headrace.memory.arena import Arena


class Delivery:
    """A ticket whose outputs are being handed out; it can say where the epoch stands after so many of them."""

    __slots__ = ("_kept", "_start", "many", "ticket")

    def __init__(self, ticket: Ticket, kept: tuple[int, int]) -> None:
        self.ticket: Ticket | None = ticket
        self._kept = kept
        """Samples left out before it and with it, of those that whoever goes on from there will not meet again."""
        self.many = 1
        """How many outputs it has."""
        self._start: RunPlace | None = None

    @classmethod
    def beginning(cls, at: RunPlace) -> "Delivery":
        """Before the first ticket."""
        delivery = cls.__new__(cls)
        delivery.ticket, delivery._kept, delivery.many, delivery._start = None, (0, 0), 0, at
        return delivery

    def place(self, taken: int) -> RunPlace:
        if self.ticket is None:
            assert self._start is not None
            return self._start
        if taken >= self.many:
            return RunPlace(self.ticket.after.place(), 0, self._kept[1])
        return RunPlace(self.ticket.before.place(), taken, self._kept[0])


def no_stop(error: BaseException) -> BaseException:
    """The error of a ticket as it can be raised: a StopIteration would end the epoch in silence, with data missing."""
    if not isinstance(error, StopIteration):
        return error
    ended = RuntimeError("code of the pipe raised StopIteration")
    for note in getattr(error, "__notes__", ()):
        ended.add_note(note)
    ended.__cause__ = error
    return ended


def open_many(reply: Reply | Assembled, arena: Arena) -> list[Any]:
    """All outputs of a ticket."""
    if isinstance(reply, Assembled):
        return reply.open(arena)
    outputs = codec.open_reply(reply, arena)
    return [outputs] if reply.count == 1 and not isinstance(reply.outputs, list) else outputs
