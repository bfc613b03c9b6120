"""Gathered: samples that the consumer takes out of blocks by itself, where no worker has to touch them again."""

from collections.abc import Callable
from typing import Any

from headrace.engine.feeds import Block, Entry
from headrace.engine.wire import codec
from headrace.engine.wire.messages import Ticket


class Gathered:
    """Parts of blocks, as one list or one by one."""

    __slots__ = ("count", "error", "group", "kept", "refs", "skips", "slot", "ticket")

    def __init__(self, ticket: Ticket, group: bool) -> None:
        self.ticket = ticket
        self.refs = ticket.payload[0]
        self.group = group
        self.error = ticket.error
        self.skips, self.kept = ticket.skips, ticket.kept
        self.count = -1
        self.slot = None

    @classmethod
    def of(cls, entry: Entry) -> "Gathered":
        ticket = Ticket(None, 0, 0, 0, ([(entry.block, entry.first, entry.stop)], 0))
        ticket.before, ticket.after = entry.before, entry.after
        ticket.error = entry.block.error
        ticket.skips, ticket.kept = entry.block.skips, entry.block.kept
        entry.block.users += 1
        entry.block.spent = entry.stop == entry.block.count
        return cls(ticket, group=False)

    def open(self, arena: Any, workers: Any, free: Callable[[Block], None]) -> list[Any]:
        samples: list[Any] = []
        for block, first, stop in self.refs:
            samples += _samples(block, first, stop, arena, workers)
            block.users -= 1
            if block.users == 0 and block.spent:
                free(block)
        return [samples] if self.group else samples


def _samples(block: Block, first: int, stop: int, arena: Any, workers: Any) -> list[Any]:
    if block.slot is None:
        return block.outputs[first:stop]  # type: ignore[no-any-return]
    if block.lease is None:
        crowded = arena.crowded()
        block.lease = memoryview(bytearray(block.slot.view)) if crowded else arena.lease(block.slot)
        block.outputs = codec.read_table(block.lease, *block.slot.table[:2])
        if crowded:
            arena.copies += 1
            workers.release(block.slot)
    return codec.load_many(block.lease, block.outputs, first, stop)
