"""Units under way: what threads of this process make before it is asked for, in memory that several processes share.

A unit that another process makes already is waited for there, not made twice (`memory.cache`).
"""

import os
from collections.abc import Callable, Iterable
from functools import partial

from headrace.memory.cache import UnitCache
from headrace.sources.pool import UNITS, Coming

AHEAD = 64 << 20
"""Bytes that are made before they are asked for, about; at most half of the memory."""
FARTHEST = 1 << 16
"""Samples that are looked ahead, at the most."""


class Underway:
    """`make(unit)` puts a unit into its slot, if it is in none."""

    def __init__(self, slots: UnitCache, make: Callable[[int], None]) -> None:
        self._slots, self._make = slots, make
        self._process = os.getpid()
        self._coming: dict[int, Coming[None]] = {}

    def look(self, mean: int, length: int) -> int:
        """How many samples of `mean` bytes, of `length` in all, are worth looking ahead."""
        room = min(AHEAD, self._slots.count * self._slots.size // 2)
        return max(1, min(room // max(1, mean), FARTHEST, length))

    def begin(self, units: Iterable[int]) -> None:
        """Begin to make these units, in this order."""
        coming = self._mine()
        for unit in [unit for unit, one in coming.items() if one.finished()]:
            coming.pop(unit).result()
        wanted = [unit for unit in dict.fromkeys(units) if unit not in coming]
        absent = self._slots.touch(wanted)
        for unit in wanted:
            if unit in absent:
                coming[unit] = UNITS.submit(partial(self._make, unit))

    def join(self, unit: int) -> None:
        """Wait for a unit that is under way; an error that it met is raised here."""
        if (one := self._mine().pop(unit, None)) is not None:
            one.result()

    def _mine(self) -> dict[int, Coming[None]]:
        if self._process != os.getpid():  # forked: the threads have stayed behind
            self._process, self._coming = os.getpid(), {}
        return self._coming
