"""Rows as a table: what single samples (dicts, or tuples with names) become when they are put into columns.

Numbers become a numpy array of the dtype that holds all of them exactly, with a mask where some are None; where there
is no such dtype (2**63 beside -1), the error names the row. Arrays of one shape are stacked, with their masks.
Everything else stays an object, and so does True beside 2.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadPipe
from headrace.tables.column import Column, NumpyColumn
from headrace.tables.table import Table

FAMILIES: tuple[tuple[type, ...], ...] = (
    (np.datetime64,),
    (np.timedelta64,),
    (bool, np.bool_),
    (int, float, complex, np.number),
)
"""Types that become one array together. numpy counts timedelta64 among the integers, so it comes before numbers."""


def table_of_rows(rows: Sequence[Any], names: Sequence[str] | None = None) -> Table:
    """Dicts with the same keys, or tuples and lists with one value for each of `names`."""
    if names is None:
        first = rows[0]
        if not isinstance(first, Mapping):
            raise BadPipe(
                f"a row must be a dict, not {type(first).__name__}; for tuples and lists give the names: "
                f"dataframe(size, columns=[...])"
            )
        names = tuple(first)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or row.keys() != first.keys():
                odd = set(row) ^ set(first) if isinstance(row, Mapping) else {type(row).__name__}
                raise BadPipe(
                    f"row {number} of the frame differs from the first in {', '.join(map(repr, sorted(map(str, odd))))}"
                )
        return Table({str(n): _column(str(n), [row[n] for row in rows]) for n in names}, len(rows))
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise BadPipe(f"row {number} of the frame has {len(row)} values for {len(names)} columns")
    return Table({n: _column(n, [row[i] for row in rows]) for i, n in enumerate(names)}, len(rows))


def _column(name: str, values: list[Any]) -> Column:
    present = [v for v in values if v is not None]
    if present and len({_family(type(v)) for v in present}) == 1 and _family(type(present[0])) is not None:
        mask = None if len(present) == len(values) else np.array([v is None for v in values])
        return NumpyColumn(_numbers(name, [present[0] if v is None else v for v in values]), mask)
    if present and all(isinstance(v, np.ndarray) for v in values) and len({(v.shape, v.dtype) for v in values}) == 1:
        masked = any(isinstance(v, np.ma.MaskedArray) for v in values)
        mask = np.stack([np.ma.getmaskarray(v) for v in values]) if masked else None
        return NumpyColumn(np.stack([np.ma.getdata(v) for v in values]), mask)
    objects = np.empty(len(values), object)
    for row, value in enumerate(values):
        objects[row] = value
    return NumpyColumn(objects)


def _family(kind: type) -> int | None:
    return next((number for number, family in enumerate(FAMILIES) if issubclass(kind, family)), None)


def _numbers(name: str, values: list[Any]) -> NDArray[Any]:
    """One array that holds each of these exactly."""
    try:
        array = np.array(values)
    except OverflowError:
        array = np.array(values, object)
    if array.dtype.kind in "fO" and all(isinstance(v, int | np.integer) for v in values):
        array = np.array(values, np.int64 if min(values) < 0 else np.uint64) if _fit(values) else array.astype(object)
    if len(set(map(type, values))) > 1 or array.dtype == object or array.dtype.kind in "mM":
        for row, value in enumerate(values):
            if array.dtype == object or not _holds(array[row], value):
                raise BadPipe(
                    f"column {name!r} is {value!r} in row {row} of the frame: no numpy type holds that exactly beside "
                    f"the other rows; make it text or a float with map() before"
                )
    return array


def _fit(values: list[Any]) -> bool:
    """Whether one of the 64-bit integers holds all of these."""
    low, high = int(min(values)), int(max(values))
    return low >= -(1 << 63) and high < (1 << 63 if low < 0 else 1 << 64)


def _holds(held: Any, value: Any) -> bool:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(held.astype(value.dtype) == value and value.astype(held.dtype) == held) or bool(np.isnat(value))
    if isinstance(value, int | np.integer) and not isinstance(held, np.integer | np.bool_):
        real = complex(held).real if isinstance(held, np.complexfloating) else held
        return bool(np.isfinite(real)) and int(real) == int(value)
    return bool(held == value) or bool(value != value)
