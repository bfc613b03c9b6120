"""Borrowed memory: an arena whose slots belong to the server of a shared pool.

A borrowed slot is one of the server's, mapped here. It goes back - its number is told to the server - when nobody here
looks into it any more. Where several consumers get the same slot, what the user is to write to is copied out of it
first, into a slot of this arena's own.
"""

import os

from headrace.memory.arena import Arena, Slot


class BorrowedArena(Arena):
    """The arena of a consumer that shares a pool."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self._mapped: dict[int, Slot] = {}
        self._back: list[int] = []

    def add(self, number: int, fd: int) -> None:
        """A slot of the server's that was not seen before. The descriptor is used up."""
        # Borrowed slots count below zero: slots of this arena's own have the same numbers above it.
        slot = self._mapped[number] = Slot(-number, fd, os.fstat(fd).st_size)
        slot.spoiled = True  # it is not this arena's to use again

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

    def copy_out(self, slot: Slot, used: int) -> Slot:
        """A private copy of the first `used` bytes of a slot; the slot goes back."""
        copy = self.lend(slot.size)
        copy.view[:used] = slot.view[:used]
        copy.table = slot.table
        self.give_back(slot)
        return copy

    def take_back(self) -> list[int]:
        """Numbers of borrowed slots that nobody looks into any more, since the last call."""
        self._take_back()
        back, self._back = self._back, []
        return back

    def retire(self, slot: Slot) -> None:
        if slot.number > 0:
            super().retire(slot)
        else:
            self.total -= slot.size
            self._back.append(-slot.number)
