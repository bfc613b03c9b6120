"""Rows of units that never leave their slots: gathered at once, whatever number of units they come from.

Where every unit has a slot, a unit that was read stays where it is. A process that has met it knows its address, needs
no lock and looks into the memory of all slots as one: a shuffled batch, which has a few rows of each of a hundred
units, then costs one gather instead of a hundred. Plain columns and text are gathered so; lists and all else go unit by
unit (see `units`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.memory.cache import Slots
from headrace.tables.arrow import width_of
from headrace.tables.column import ArrowColumn, Ints
from headrace.tables.packages import package

UNKNOWN = -1
LONGEST = 2**31 - 1
"""Bytes that offsets of 32 bits can count."""


class KeptUnits:
    """The units of `slots` that this process has met. `width`: bytes of a record; `texts`: columns that are text."""

    def __init__(self, slots: Slots, units: int, width: int, texts: Mapping[str, ArrowColumn]) -> None:
        self._slots = slots
        self._width = width
        self._records = slots.windows(np.dtype(f"V{width}")) if width else None
        self._slot = np.full(units, UNKNOWN)
        self._texts = {name: _TextPlaces(slots, units, column.array.type) for name, column in texts.items()}

    def meet(self, unit: int, arrays: Mapping[str, Any]) -> None:
        """A unit is being read; its text is in these arrays, which look into its slot."""
        if self._slot[unit] == UNKNOWN and all(p.meet(unit, arrays.get(name)) for name, p in self._texts.items()):
            self._slot[unit] = self._slots.where(unit)

    def has(self, units: Ints, names: Iterable[str]) -> bool:
        """Whether these columns without a fixed size can be gathered from all of these units."""
        return self._texts.keys() >= set(names) and self._slots.hold(self._slot[units], units)

    def records(self, units: Ints, rows: Ints) -> NDArray[np.uint8]:
        """Rows of units, as bytes of records."""
        if self._records is None:
            return np.empty((len(rows), 0), np.uint8)
        at = self._slots.starts(self._slot[units]) + rows * self._width
        found: NDArray[np.uint8] = self._records[at].view(np.uint8)
        return found.reshape(len(rows), self._width)

    def text(self, name: str, units: Ints, rows: Ints) -> Any:
        """The same rows of a column of text, as an Arrow array; None if it is too long for one."""
        return self._texts[name].take(units, rows)


class _TextPlaces:
    """Where the parts of a column of text lie, for each unit: addresses in the memory of the slots."""

    def __init__(self, slots: Slots, units: int, kind: Any) -> None:
        self._slots = slots
        self._kind = kind
        self._offset = np.dtype(f"i{width_of(kind)}")
        self._pairs = slots.windows(np.dtype(f"V{2 * self._offset.itemsize}"))
        """A text's own offset, and that of the next."""
        self._bytes = slots.windows(np.dtype(np.uint8))
        self._valid, self._offsets, self._data = np.full((3, units), UNKNOWN)
        self._may_miss = False

    def meet(self, unit: int, array: Any) -> bool:
        if array is None:
            return False  # it is longer than its slot
        valid, offsets, data = (
            UNKNOWN if buffer is None else self._slots.inside(buffer.address) for buffer in array.buffers()
        )
        if array.offset or offsets == UNKNOWN:
            return False
        self._valid[unit], self._offsets[unit], self._data[unit] = valid, offsets, data
        self._may_miss |= valid != UNKNOWN
        return True

    def take(self, units: Ints, rows: Ints) -> Any:
        pa = package("pyarrow")
        pairs = self._pairs[self._offsets[units] + rows * self._offset.itemsize].view(self._offset).reshape(-1, 2)
        ends = np.zeros(len(rows) + 1, self._offset)
        np.cumsum(pairs[:, 1] - pairs[:, 0], out=ends[1:])
        at, memory = pairs + self._data[units, None], memoryview(self._slots.memory)
        # (Slices of a view are not copied before they are joined; nothing vectorised was faster.)
        joined = b"".join([memory[a:b] for a, b in zip(at[:, 0].tolist(), at[:, 1].tolist(), strict=True)])
        if self._offset.itemsize == 4 and len(joined) > LONGEST:
            return None
        valid = self._validity(units, rows) if self._may_miss else None
        return pa.Array.from_buffers(self._kind, len(rows), [valid, pa.py_buffer(ends), pa.py_buffer(joined)])

    def _validity(self, units: Ints, rows: Ints) -> Any:
        at = self._valid[units]
        known = at != UNKNOWN
        bits = self._bytes[np.where(known, at + (rows >> 3), 0)] >> (rows & 7).astype(np.uint8)
        return package("pyarrow").py_buffer(np.packbits((bits & 1).astype(np.bool_) | ~known, bitorder="little"))
