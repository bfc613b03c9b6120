"""Merge: one table out of several, which must be alike.

Tables are alike if they have the same columns in the same order, each of the same logical type: a duration and a time
of day are the same integers in memory, but not alike. Nothing is cast to make tables alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import BadPipe
from headrace.op import place
from headrace.tables.column import ArrowColumn, Column, Ints, NumpyColumn, field_of, may_miss
from headrace.tables.convert.arrow_types import enum_values
from headrace.tables.convert.from_arrow import from_arrow
from headrace.tables.convert.to_arrow import to_arrow, type_of
from headrace.tables.packages import pa
from headrace.tables.table import Table


def check_alike(tables: Sequence[Mapping[str, Column]]) -> None:
    """Raise unless these columns can be put into one table."""
    first = tables[0]
    for other in tables[1:]:
        if tuple(other) != tuple(first):
            raise BadPipe(
                f"these tables do not have the same columns: {', '.join(first)} and {', '.join(other)}; "
                f"select() the ones that they share, in one order"
            )
        for name, column in first.items():
            if not _alike(column, other[name]):
                kinds = " and ".join(sorted({_shown(column), _shown(other[name])}))
                raise BadPipe(f"column {name!r} is {kinds} in different parts: cast them to one type first")


def _alike(one: Column, two: Column) -> bool:
    if type(one.dtype) is not type(two.dtype) or one.dtype != two.dtype:
        return False
    if isinstance(one, NumpyColumn) and isinstance(two, NumpyColumn):
        same = one.values.dtype == two.values.dtype and one.values.shape[1:] == two.values.shape[1:]
        if not same or one.values.dtype == object or (one.field is None and two.field is None):
            return same and (one.values.dtype != object or one.field == two.field)
    if type_of(one) != type_of(two) or enum_values(field_of(one)) != enum_values(field_of(two)):
        return False
    if one.dtype != "category":
        return True
    return bool(_categories(one) == _categories(two))


def _categories(column: Column) -> list[Any]:
    assert isinstance(column, ArrowColumn)
    return column.array.dictionary.to_pylist()  # type: ignore[no-any-return]


def _shown(column: Column) -> str:
    if column.dtype == "category" or enum_values(field_of(column)):
        return f"a category of {_categories(column)}"
    if column.dtype is not None:
        return str(column.dtype)
    if isinstance(column, NumpyColumn) and column.field is None:
        return f"{column.values.dtype}{list(column.values.shape[1:]) or ''}"
    return str(type_of(column) or "Python objects")


def gaps(tables: Sequence[Mapping[str, Column]]) -> dict[str, bool]:
    """Columns in which values may be missing in some of these tables and not in others, and whether one of them is
    Arrow's."""
    found = {name: [table[name] for table in tables] for name in tables[0]}
    return {
        name: any(isinstance(column, ArrowColumn) for column in columns)
        for name, columns in found.items()
        if len({(type(column), may_miss(column)) for column in columns}) > 1
    }


def with_gaps(column: Column, arrow: bool) -> Column:
    """The column as one in which values may be missing."""
    if arrow:
        return _as_arrow(column, True)
    assert isinstance(column, NumpyColumn)
    return column if column.mask is not None else replace(column, mask=np.zeros(len(column), np.bool_))


def _as_arrow(column: Column, missing: bool) -> ArrowColumn:
    array = column.array if isinstance(column, ArrowColumn) else to_arrow(column)
    return ArrowColumn(array, column.field, column.dtype, missing)


def merge(owners: Ints, take: Callable[[int, Ints], Table]) -> Table:
    """The table with one row of each of these owners; `take(owner, places)` gives those of one. They must be alike."""
    parts = []
    for owner in np.unique(owners).tolist():
        places = np.flatnonzero(owners == owner)
        parts.append((places, take(owner, places)))
    length, first = len(owners), parts[0][1]
    if len(parts) == 1:
        return first
    check_alike([table.columns for _, table in parts])
    return Table({name: _merged(length, name, parts) for name in first.names}, length)


def _merged(length: int, name: str, parts: Sequence[tuple[Ints, Table]]) -> Column:
    columns = [table.columns[name] for _, table in parts]
    first = columns[0]
    if any(isinstance(c, ArrowColumn) for c in columns):
        places = np.concatenate([p for p, _ in parts])
        joined = pa.chunked_array([to_arrow(c) for c in columns])
        whole = from_arrow(joined, field_of(first)).take(np.argsort(places, kind="stable"))
        # Whether values may be missing is known of the parts: it is not for these few rows to decide.
        return _as_arrow(replace(whole, dtype=first.dtype), any(map(may_miss, columns)))
    plain = [c for c in columns if isinstance(c, NumpyColumn)]
    out = place.empty((length, *plain[0].values.shape[1:]), plain[0].values.dtype)
    mask = _empty_mask(length, plain)
    for (places, _), column in zip(parts, plain, strict=True):
        out[places] = column.values
        if mask is not None and column.mask is not None:
            mask[places] = column.mask if column.mask.ndim == mask.ndim else column.whole_mask()
    return replace(plain[0], values=out, mask=mask)


def _empty_mask(length: int, columns: list[NumpyColumn]) -> Any:
    """A mask as detailed as the most detailed of theirs, or None if none has one."""
    shapes = [c.mask.shape[1:] for c in columns if c.mask is not None]
    return np.zeros((length, *max(shapes, key=len)), np.bool_) if shapes else None
