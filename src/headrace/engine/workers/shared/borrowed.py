"""Borrowed memory: an arena whose slots belong to the server of a shared pool.

A borrowed slot is one of the server's, mapped in this process. When its last view here has died, its number is sent to
the server, which may use it again. Where several consumers get the same slot, its contents are first copied into a slot
of this arena's own, because the user may write to what he gets.
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
        """Map a slot of the server's that is new here. The descriptor is used up."""
        # Borrowed slots count below zero: slots of this arena's own have the same numbers above it.
        slot = self._mapped[number] = Slot(-number, fd, os.fstat(fd).st_size)
        slot.spoiled = True  # (this arena must not use it again: it belongs to the server)

    def forget(self, numbers: list[int]) -> None:
        """Let go of slots that the server will not lend again."""
        for number in numbers:
            self._mapped.pop(number, None)

    def borrow(self, number: int) -> Slot:
        """The slot with this number, which the server has lent."""
        slot = self._mapped[number]
        self.total += slot.size
        self.largest = max(self.largest, slot.size)
        return slot

    def copy_out(self, slot: Slot, used: int) -> Slot:
        """Copy the first `used` bytes of a slot into one of this arena's own, and give the slot back."""
        copy = self.lend(slot.size)
        copy.view[:used] = slot.view[:used]
        copy.table = slot.table
        self.give_back(slot)
        return copy

    def take_back(self) -> list[int]:
        """Numbers of the borrowed slots whose last view has died since the last call."""
        self._take_back()
        back, self._back = self._back, []
        return back

    def retire(self, slot: Slot) -> None:
        if slot.number > 0:
            super().retire(slot)
        else:
            self.total -= slot.size
            self._back.append(-slot.number)
