"""Column: the values of one name, in one of two ways.

    Plain   a numpy array with one entry a row, and a mask where values may be missing (True: missing)
    Arrow   a pyarrow array: text, lists, structs, categories, decimals - what has no numpy dtype of its own

A column remembers the Arrow field (`field`) and the pandas dtype (`dtype`) that it came from, so that a batch can be
given back in them. Nothing is ever filled in for a missing value.

A column never changes; it is not frozen only because freezing triples the cost of making one, and a batch has many.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.packages import package

Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Plain:
    values: NDArray[Any]
    mask: NDArray[np.bool_] | None = None
    field: Any = None
    dtype: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, positions: Ints) -> "Plain":
        mask = None if self.mask is None else self.mask[positions]
        return replace(self, values=self.values[positions], mask=mask)

    def slice(self, first: int, stop: int) -> "Plain":
        return replace(self, values=self.values[first:stop], mask=None if self.mask is None else self.mask[first:stop])

    def at(self, row: int) -> Any:
        return None if self.mask is not None and self.mask[row] else self.values[row]


@dataclass(slots=True, eq=False)
class Arrow:
    array: Any
    field: Any = None
    dtype: Any = None

    def __len__(self) -> int:
        return len(self.array)

    def take(self, positions: Ints) -> "Arrow":
        return replace(self, array=self.array.take(positions))

    def at(self, row: int) -> Any:
        from headrace.tables.arrow import to_numpy

        value = to_numpy(self.array.slice(row, 1))
        return None if np.ma.getmaskarray(value)[0] else value[0]


Column = Plain | Arrow


def field_of(column: Column) -> Any:
    """The Arrow field that the column came from, or None."""
    return _unpacked(column.field) if isinstance(column.field, bytes) else column.field


def packed_field(column: Column) -> bytes | None:
    """The field in a form that needs no pyarrow to travel: a worker that is never asked for it need not import it."""
    if column.field is None or isinstance(column.field, bytes):
        return column.field
    return package("pyarrow").schema([column.field]).serialize().to_pybytes()  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _unpacked(data: bytes) -> Any:
    pa = package("pyarrow")
    return pa.ipc.read_schema(pa.py_buffer(data)).field(0)
