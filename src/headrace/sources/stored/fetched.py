"""Fetched units: stretches of remote files, in memory that all workers of a loader share, each fetched once for them.

A sample of a remote file is not a request: its unit is. The units of the samples that come next are fetched before they
are asked for, several at once, by whichever worker is told of them first; the others find them in memory, or wait for
them. A unit that is larger than a slot is not kept: its samples are requests of their own.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.memory.cache import UnitCache
from headrace.op import Upcoming
from headrace.sources.bytes import ByteFile
from headrace.sources.stored.format import Ints, Spans
from headrace.sources.underway import Underway

MEMORY = 1 << 30
"""Bytes of units in memory, at the most: a shuffled order has 192 open at a time, of about 4 MB each."""
LARGEST = 32 << 20
"""Bytes of a unit that is kept."""


class OpenedUnits:
    """The units of one source in this process, once they are opened. Their memory goes to other processes."""

    def __init__(self, slots: UnitCache | None = None) -> None:
        self.units: FetchedUnits | None = None
        self.slots = slots

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenedUnits, (self.slots if self.units is None else self.units.slots,)


class FetchedUnits:
    """The units that end before the positions `ends`, of files with these `spans`; `slots`: of another process."""

    def __init__(
        self,
        spans: Sequence[Spans],
        file_ends: Sequence[int],
        ends: Ints,
        open_file: Callable[[int], ByteFile],
        slots: UnitCache | None = None,
    ) -> None:
        self._open = open_file
        self._ends: list[int] = ends.tolist()
        firsts = np.append(0, ends[:-1]) if len(ends) else ends
        self._rows = ends - firsts
        self._files = np.searchsorted(np.asarray(file_ends), firsts, side="right")
        self._starts, self._stops = np.zeros((2, len(ends)), np.int64)
        for number, found in enumerate(spans):
            mine = np.flatnonzero(self._files == number)
            if len(mine):
                rows = firsts[mine] - (file_ends[number - 1] if number else 0)
                self._starts[mine] = np.minimum.reduceat(found.starts, rows)
                self._stops[mine] = np.maximum.reduceat(found.starts + found.sizes, rows)
        sizes = self._stops - self._starts
        kept = sizes[sizes <= LARGEST]
        self.slots = slots if slots is not None else _slots(kept)
        self.hold = len(ends) if len(kept) <= self.slots.count else max(1, self.slots.count * 4 // 5)
        """Units that may be open at a time: some slots are for those that come and go."""
        self._mean = max(1, int(sizes.sum()) // max(1, int(ends[-1]) if len(ends) else 0))
        self._underway = Underway(self.slots, self._make)

    def read(self, position: int, file: ByteFile, start: int, size: int) -> bytes:
        """The bytes of the sample at a position, which stand there in its file."""
        unit = bisect_right(self._ends, position)
        first = int(self._starts[unit])
        if not self._is_kept(unit):
            return bytes(file.pread(start, size))
        self._underway.join(unit)
        found: list[bytes] = []

        def use(memory: memoryview) -> None:
            found.append(bytes(memory[start - first : start - first + size]))

        self.slots.read(unit, use, partial(self._fill, unit), 1, int(self._rows[unit]))
        return found[0]

    def ahead(self, length: int) -> Upcoming:
        return Upcoming(self._begin, self._begin, self._underway.look(self._mean, length))

    def _begin(self, positions: Sequence[int]) -> None:
        units = (bisect_right(self._ends, position) for position in positions)
        self._underway.begin(unit for unit in units if self._is_kept(unit))

    def _make(self, unit: int) -> None:
        self.slots.read(unit, lambda memory: None, partial(self._fill, unit), 0, int(self._rows[unit]))

    def _fill(self, unit: int, memory: memoryview) -> None:
        start, stop = int(self._starts[unit]), int(self._stops[unit])
        memory[: stop - start] = self._open(int(self._files[unit])).pread(start, stop - start)

    def _is_kept(self, unit: int) -> bool:
        return int(self._stops[unit] - self._starts[unit]) <= self.slots.size


def _slots(sizes: Ints) -> UnitCache:
    size = max(1, int(sizes.max(initial=1)))
    return UnitCache(max(1, min(len(sizes), MEMORY // size)), size)
