"""Block: many samples that one ticket made, wherever they lie, with a count of its users.

hold()    one more user: a ticket that reads its samples, or a feed that may need them later
drop()    one user less
spend()   all its samples have been handed on: with its last user, its slot is given back
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.engine.wire import codec
from headrace.engine.wire.messages import WHOLE, Fault, Reply, Ticket
from headrace.memory.arena import Arena


class Block:
    """Owns the slot that its samples lie in, if they lie in one, until it is spent and has no more users."""

    __slots__ = (
        "_release", "_spent", "_users", "count", "end", "faults", "kept", "lease", "outputs", "skips", "slot",
        "slot_given_away",
    )  # fmt: skip

    def __init__(self, reply: Reply, release: Callable[[Any], None]) -> None:
        self.slot = reply.slot
        self.outputs = reply.outputs
        assert reply.count is not None  # samples are packed one by one
        self.count = reply.count
        self.faults = reply.faults
        self.skips = reply.skips
        self.kept = reply.kept
        self.end = reply.bytes
        """Where its samples end in the slot."""
        self.slot_given_away = False
        """A batch was written behind its samples, and owns the slot now."""
        self.lease: Any = None
        self._users = 0
        self._spent = False
        self._release = release

    def hold(self) -> None:
        self._users += 1

    def drop(self) -> None:
        self._users -= 1
        if self._users == 0 and self._spent:
            self._free()

    def spend(self) -> None:
        self._spent = True
        if self._users == 0:
            self._free()

    def _free(self) -> None:
        if self.slot is not None and self.lease is None and not self.slot_given_away:
            self._release(self.slot)
        self.lease = self.outputs = self.slot = None

    def samples(self, first: int, stop: int, arena: Arena) -> list[Any]:
        """Samples first to stop, as objects in the consumer."""
        if self.slot is None:
            return self.outputs[first:stop]  # type: ignore[no-any-return]
        if self.lease is None:
            crowded = arena.crowded()
            self.lease = memoryview(bytearray(self.slot.view)) if crowded else arena.lease(self.slot)
            self.outputs = codec.read_table(self.lease, *self.slot.table[:2])
            if crowded:
                arena.copies += 1
                self._release(self.slot)
        return codec.load_many(self.lease, self.outputs, first, stop)


@dataclass(slots=True, eq=False)
class Entry:
    """Samples `first..stop` of a block, with marks of where the epoch stands before and after them; or an error."""

    block: Block
    first: int
    stop: int
    before: object
    after: object
    gone: int = 0
    """How many samples lie between the mark `before` and this entry."""
    error: BaseException | None = None
    closes: bool = False
    """The group of the next stage that it is in ends with it."""


class AssembledReply:
    """Stands in the loop where a reply would, for samples that need no worker any more: the consumer takes them out of
    their blocks itself, as one list (`group`) or one by one."""

    __slots__ = ("count", "faults", "group", "kept", "skips", "slot", "state", "ticket")
    worker = 0

    def __init__(self, ticket: Ticket, group: bool) -> None:
        self.ticket = ticket
        self.group = group
        self.faults: Sequence[Fault] = () if ticket.error is None else ((0, WHOLE, ticket.error),)
        self.skips, self.kept = ticket.skips, ticket.kept
        self.count = self.slot = self.state = None

    @classmethod
    def of(cls, entry: Entry) -> AssembledReply:
        """The samples of an entry, one by one."""
        block = entry.block
        refs = [] if entry.error else [(block, entry.first, entry.stop)]
        ticket = Ticket(None, 0, 0, 0, (refs, 0))
        ticket.before, ticket.after = entry.before, entry.after
        ticket.error = entry.error
        ticket.skips, ticket.kept = block.skips, block.kept
        if refs:
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
        return [samples] if self.group and samples else samples
