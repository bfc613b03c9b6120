"""Column: the values of one name, in one of two ways.

    NumpyColumn   a numpy array with one entry a row, and a mask where values may be missing (True: missing)
    ArrowColumn   a pyarrow array: text, lists, structs, categories, decimals - what has no numpy dtype of its own

A mask has one entry a row (the whole row is missing) or the shape of the values (some of its elements are). A column
remembers the Arrow field (`field`; of Python objects it may be the name of the type) and the pandas dtype (`dtype`)
that it came from, so that a batch can be given back in them. Nothing is ever filled in for a missing value.

A column never changes, and what is taken out of it (`at`, `take`) is a copy: a user who edits a row or a batch in
place never changes the table, whatever kind of worker made it. The classes are not frozen only because that triples the
cost of making a column, and a batch has many.
"""

import datetime as dt
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.op import place
from headrace.tables.packages import pa

Ints = NDArray[np.int64]
UNCHANGING = frozenset(
    {type(None), bool, int, float, complex, str, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta}
)
"""Types of objects that cannot be edited in place: they need no copy."""
SCALARS = (np.number, np.bool_)


@dataclass(slots=True, eq=False)
class NumpyColumn:
    values: NDArray[Any]
    mask: NDArray[np.bool_] | None = None
    field: Any = None
    dtype: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, positions: Ints) -> "NumpyColumn":
        mask = None if self.mask is None else _gathered(self.mask, positions)
        return replace(self, values=_gathered(self.values, positions), mask=mask)

    def slice(self, first: int, stop: int) -> "NumpyColumn":
        return replace(self, values=self.values[first:stop], mask=None if self.mask is None else self.mask[first:stop])

    def at(self, row: int) -> Any:
        if self.mask is not None:
            if self.mask.ndim > 1:
                return np.ma.MaskedArray(self.values[row].copy(), self.mask[row].copy())
            if self.mask[row]:
                return None
        value = self.values[row]
        if isinstance(value, SCALARS):
            return value
        if self.values.dtype.hasobject:
            return copy_mutable(self.values[row : row + 1])[0]
        return value.copy() if isinstance(value, np.ndarray | np.void) else value

    def whole_mask(self) -> NDArray[np.bool_] | None:
        """The mask, with an entry for each element."""
        mask, values = self.mask, self.values
        if mask is None or mask.ndim == values.ndim:
            return mask
        return np.broadcast_to(mask.reshape(-1, *[1] * (values.ndim - 1)), values.shape).copy()


@dataclass(slots=True, eq=False)
class ArrowColumn:
    array: Any
    field: Any = None
    dtype: Any = None
    may_miss: bool = True
    """Whether values may be missing: decided once for all rows, so that no batch is masked when another is not."""
    sound: bool = False
    """Its text is known to be valid, because the units that it was taken from were checked: batches need no check."""

    def __len__(self) -> int:
        return len(self.array)

    def take(self, positions: Ints) -> "ArrowColumn":
        return replace(self, array=self.array.take(positions))

    def slice(self, first: int, stop: int) -> "ArrowColumn":
        return replace(self, array=self.array.slice(first, stop - first))

    def at(self, row: int) -> Any:
        from headrace.tables.convert.from_arrow import to_numpy

        value = to_numpy(self.array.slice(row, 1))
        return None if np.ma.getmaskarray(value)[0] else value[0]


Column = NumpyColumn | ArrowColumn


def may_miss(column: Column) -> bool:
    """Whether a column says that values may be missing; of Python objects, any may be None without a word."""
    return column.may_miss if isinstance(column, ArrowColumn) else column.mask is not None


def _gathered(values: NDArray[Any], positions: Ints) -> NDArray[Any]:
    """The values at these positions, in the memory from which the batch is sent, if it is."""
    out: NDArray[Any] = place.empty((len(positions), *values.shape[1:]), values.dtype)
    if values.flags.c_contiguous:
        values.take(positions, 0, out, "clip")
    else:
        out[...] = values[positions]  # take() would first copy the whole column into one piece
    return copy_mutable(out)


def copy_mutable(values: NDArray[Any]) -> NDArray[Any]:
    """The values; of objects that can be edited, copies (a worker process gets copies too: they are pickled)."""
    if not values.dtype.hasobject or values.dtype.names is not None:
        return values
    if all(type(value) in UNCHANGING for value in values.flat):
        return values
    copied = np.empty(values.shape, object)
    for at in np.ndindex(values.shape):
        value = values[at]
        copied[at] = value if type(value) in UNCHANGING else deepcopy(value)
    return copied


def field_of(column: Column) -> Any:
    """The Arrow field that the column came from, or None."""
    if isinstance(column.field, str):
        return pa.field("", pa.type_for_alias(column.field)) if column.field else None
    return _unpacked(column.field) if isinstance(column.field, bytes) else column.field


def packed_field(column: Column) -> bytes | str | None:
    """The field in a form that needs no pyarrow to travel: a worker that is never asked for it need not import it."""
    if column.field is None or isinstance(column.field, bytes | str):
        return column.field
    return pa.schema([column.field]).serialize().to_pybytes()  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _unpacked(data: bytes) -> Any:
    from headrace.tables.convert.arrow_types import read_schema

    return read_schema(data).field(0)
