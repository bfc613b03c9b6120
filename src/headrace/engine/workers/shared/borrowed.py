"""Borrowed memory: an arena whose slots belong to the server of a shared pool.

A borrowed slot is one of the server's, mapped here. It goes back - its number is told to the server - when nobody here
looks into it any more. Where several consumers get the same slot, what the user is to write to is copied out of it
first, into a slot of this arena's own.
"""

import os
from collections import deque
from typing import Any

from headrace.engine.wire import codec
from headrace.memory.arena import HEADER, Arena, Slot


class BorrowedArena(Arena):
    """The arena of a consumer that shares a pool."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._mapped: dict[int, Slot] = {}
        self._back: list[int] = []

    def meet(self, number: int, fd: int) -> None:
        """A slot of the server's that was not seen before. The descriptor is used up."""
        # Borrowed slots count below zero: slots of this arena's own have the same numbers above it.
        self._mapped[number] = Slot(-number, fd, os.fstat(fd).st_size)

    def forget(self, numbers: list[int]) -> None:
        """Slots that the server will not lend again."""
        for number in numbers:
            self._mapped.pop(number, None)

    def borrow(self, number: int) -> Slot:
        """A slot that the server has lent."""
        slot = self._mapped[number]
        self.total += slot.size
        self.largest = max(self.largest, slot.size)
        return slot

    def own(self, slot: Slot, head: object, spans: tuple[int, ...]) -> tuple[Slot, Any, tuple[int, ...]]:
        """A private copy of a result; the slot goes back."""
        view = slot.view
        raw = [view[spans[k] : spans[k] + spans[k + 1]] for k in range(0, len(spans), 2)]
        if type(head) is tuple:
            head = bytes(view[head[0] : head[0] + head[1]])
        copy = self.lend(codec.Writer(memoryview(b""), 0, HEADER).need(raw, 0))
        copied = tuple(codec.Writer(copy.view, copy.address, HEADER).write(raw))
        self.give_back(slot)
        return copy, head, copied

    def own_many(self, slot: Slot) -> Slot:
        """A private copy of many samples; the slot goes back."""
        copy = self.lend(slot.size)
        copy.view[: slot.size] = slot.view
        copy.table = slot.table
        self.give_back(slot)
        return copy

    def take_back(self) -> list[int]:
        """Numbers of borrowed slots that nobody looks into any more, since the last call."""
        self._take_back()
        back, self._back = self._back, []
        return back

    def _take_back(self) -> None:
        mine: deque[Any] = deque()
        returned = self._returned
        while returned:
            thing = returned.popleft()
            slot = thing if isinstance(thing, Slot) else thing.slot
            if slot.number > 0:
                mine.append(thing)
                continue
            if thing is not slot:
                del self._leases[slot.number]
            self.total -= slot.size
            self._back.append(-slot.number)
        returned.extend(mine)
        super()._take_back()

    def retire(self, slot: Slot) -> None:
        if slot.number > 0:
            super().retire(slot)
        else:
            self.give_back(slot)
