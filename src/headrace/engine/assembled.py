"""Assembled: samples that the consumer takes out of blocks by itself, where no worker has to touch them again."""

from collections.abc import Iterator
from typing import Any

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.wire.messages import Ticket
from headrace.memory.arena import Arena


class Assembled:
    """Parts of blocks, as one list or one by one; in the loop it stands where a reply would."""

    __slots__ = ("count", "error", "group", "kept", "skips", "slot", "ticket")

    def __init__(self, ticket: Ticket, group: bool) -> None:
        self.ticket = ticket
        self.group = group
        self.error = ticket.error
        self.skips, self.kept = ticket.skips, ticket.kept
        self.count = -1
        self.slot = None

    @classmethod
    def of(cls, entry: Entry) -> "Assembled":
        block = entry.block
        ticket = Ticket(None, 0, 0, 0, ([(block, entry.first, entry.stop)], 0))
        ticket.before, ticket.after = entry.before, entry.after
        ticket.error = block.error
        ticket.skips, ticket.kept = block.skips, block.kept
        block.hold()
        if entry.stop == block.count:
            block.spend()
        return cls(ticket, group=False)

    def blocks(self) -> Iterator[Block]:
        return (block for block, _, _ in self.ticket.payload[0])

    def open(self, arena: Arena) -> list[Any]:
        samples: list[Any] = []
        for block, first, stop in self.ticket.payload[0]:
            samples += block.samples(first, stop, arena)
            block.drop()
        return [samples] if self.group else samples
