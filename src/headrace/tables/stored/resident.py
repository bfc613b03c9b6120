"""Resident units: rows gathered at once, whatever number of units they come from.

Where every unit has a slot, a unit that was read stays where it is. A process that has read from it once knows its
address, needs no lock and looks into the memory of all slots as one: a shuffled batch, which has a few rows of each of
a hundred units, then costs one gather instead of a hundred. Plain columns and text are gathered so; lists and all else
are fetched unit by unit (see `unit_table`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.memory.cache import UnitCache
from headrace.tables.batch_transfer import is_sound
from headrace.tables.column import Ints
from headrace.tables.convert.arrow_types import offset_size
from headrace.tables.packages import pa
from headrace.tables.stored.text_gather import TextGather

UNKNOWN = -1


class ResidentUnits:
    """The units in `slots` that this process has read from.

    `width`: bytes of a record. `texts`: the Arrow types of the columns that are text.
    """

    def __init__(self, slots: UnitCache, units: int, width: int, texts: Mapping[str, Any]) -> None:
        self._slots = slots
        self._width = width
        self._records = slots.windows(np.dtype(f"V{width}")) if width else None
        self._slot = np.full(units, UNKNOWN)
        self._texts = {name: _TextColumn(slots, units, kind) for name, kind in texts.items()}

    def add(self, unit: int, arrays: Mapping[str, Any]) -> None:
        """A unit is being read from; its text is in these arrays, which look into its slot."""
        if self._slot[unit] == UNKNOWN and all(t.add(unit, arrays.get(name)) for name, t in self._texts.items()):
            self._slot[unit] = self._slots.where(unit)

    def has(self, units: Ints, names: Iterable[str]) -> bool:
        """Whether these columns without a fixed size can be gathered from all of these units."""
        return self._texts.keys() >= set(names) and self._slots.hold(self._slot[units], units)

    def records(self, units: Ints, rows: Ints) -> NDArray[np.uint8]:
        """Rows of units, as bytes of records."""
        if self._records is None:
            return np.empty((len(rows), 0), np.uint8)
        taken = self._records[self._slots.starts(self._slot[units]) + rows * self._width]
        found: NDArray[np.uint8] = taken.view(np.uint8)
        return found.reshape(len(rows), self._width)

    def text(self, name: str, units: Ints, rows: Ints) -> Any:
        """The same rows of a column of text, as an Arrow array; None if it is too long for one."""
        return self._texts[name].take(units, rows)

    def sound(self, name: str) -> bool:
        """Whether all text of this column is valid in the units that were added: then so is what is taken of it."""
        return self._texts[name].sound


class _TextColumn:
    """Where the buffers of a column of text lie, for each unit: places in the memory of the slots."""

    def __init__(self, slots: UnitCache, units: int, kind: Any) -> None:
        self._slots = slots
        self._kind = kind
        self._offset = offset = np.dtype(f"i{offset_size(kind)}")
        self._numbers = np.frombuffer(slots.memory, offset, len(slots.memory) // offset.itemsize)
        """The memory as offsets: where those of a unit lie is counted in these."""
        self._bytes = slots.windows(np.dtype(np.uint8))
        self._gather = TextGather(memoryview(slots.memory), offset.itemsize)
        self._valid, self._offsets, self._data = np.full((3, units), UNKNOWN)
        self._may_miss = False
        self.sound = True

    def add(self, unit: int, array: Any) -> bool:
        """Note where the text of a unit lies; False where it cannot be gathered from there."""
        if array is None:
            return False  # it is longer than its slot
        valid, offsets, data = (
            UNKNOWN if buffer is None else self._slots.inside(buffer.address) for buffer in array.buffers()
        )
        if array.offset or offsets == UNKNOWN or offsets % self._offset.itemsize:
            return False
        self._valid[unit], self._offsets[unit], self._data[unit] = valid, offsets // self._offset.itemsize, data
        self._may_miss |= valid != UNKNOWN
        self.sound = self.sound and is_sound(array)
        return True

    def take(self, units: Ints, rows: Ints) -> Any:
        at = self._offsets[units] + rows
        starts, stops = self._numbers.take(at), self._numbers.take(at + 1)
        parts = self._gather(self._data[units] + starts, stops - starts)
        if parts is None:
            return None
        valid = self._validity(units, rows) if self._may_miss else None
        return pa.Array.from_buffers(self._kind, len(rows), [valid, *parts])

    def _validity(self, units: Ints, rows: Ints) -> Any:
        at = self._valid[units]
        known = at != UNKNOWN
        bits = self._bytes[np.where(known, at + (rows >> 3), 0)] >> (rows & 7).astype(np.uint8)
        return pa.py_buffer(np.packbits((bits & 1).astype(np.bool_) | ~known, bitorder="little"))
