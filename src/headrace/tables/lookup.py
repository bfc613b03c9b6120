"""Lookup: rows of a table by their keys, many at once.

Keys that are plain numbers or dates are found by search in a sorted copy; others through a dict.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.tables.arrow import deliver
from headrace.tables.column import Arrow, Column, Ints, Plain
from headrace.tables.packages import package
from headrace.tables.table import Table, check_names


class Lookup:
    """`table` by the columns `keys`; each key occurs once."""

    def __init__(self, table: Table, keys: Sequence[str]) -> None:
        check_names(keys, table.columns)
        self.table = table
        self.keys = tuple(keys)
        self.values = tuple(name for name in table.names if name not in self.keys)
        self._sorted: tuple[NDArray[Any], Ints] | None = None
        self._rows: dict[Any, int] | None = None
        self._prepare()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Lookup, (self.table, self.keys))

    def _prepare(self) -> None:
        columns = [self.table.columns[name] for name in self.keys]
        if len(columns) == 1 and isinstance(columns[0], Plain) and _sortable(columns[0]):
            values = columns[0].values
            order = np.argsort(values, kind="stable")
            ranked = values[order]
            if len(ranked) > 1 and (again := np.flatnonzero(ranked[1:] == ranked[:-1])).size:
                raise _twice(self.keys, ranked[again[0]].item())
            self._sorted = (ranked, order)
            return
        self._rows = {}
        for row, key in enumerate(_tuples([deliver(c) for c in columns])):
            if key in self._rows:
                raise _twice(self.keys, key if len(self.keys) > 1 else key[0])
            self._rows[key] = row

    def find(self, columns: Sequence[Column]) -> Ints:
        """The row of the table for each key; -1 where there is none, as for a key that is missing."""
        if self._rows is not None:
            get = self._rows.get
            return np.array([get(key, -1) for key in _tuples([deliver(c) for c in columns])], np.int64)
        assert self._sorted is not None
        ranked, order = self._sorted
        wanted = deliver(columns[0])
        if not len(ranked):
            return np.full(len(wanted), -1, np.int64)
        place = np.minimum(np.searchsorted(ranked, np.ma.getdata(wanted)), len(ranked) - 1)
        hit = (ranked[place] == np.ma.getdata(wanted)) & ~np.ma.getmaskarray(wanted)
        return np.where(hit, order[place], -1)

    def rows(self, found: Ints, always: bool) -> dict[str, Column]:
        """The other columns of these rows; where -1 stands they are missing, unless `always` says that none is."""
        absent = found < 0
        part = self.table.take(np.where(absent, 0, found), self.values) if self.table.length else self._nothing(found)
        if always:
            return part.columns
        return {name: _with_holes(column, absent) for name, column in part.columns.items()}

    def _nothing(self, found: Ints) -> Table:
        raise BadOption(f"the frame given to join() has no rows: nothing can be found in it for {len(found)} keys")


def _twice(keys: tuple[str, ...], key: Any) -> BadOption:
    return BadOption(f"join() needs each key once in the frame, but {', '.join(keys)} = {key!r} is there twice")


def _sortable(column: Plain) -> bool:
    return column.mask is None and column.values.ndim == 1 and column.values.dtype.kind in "biufmM"


def _tuples(columns: list[NDArray[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*[column.tolist() for column in columns], strict=True))


def _with_holes(column: Column, absent: NDArray[np.bool_]) -> Column:
    if isinstance(column, Plain):
        if column.values.dtype.hasobject:
            values = column.values.copy()
            values[absent] = None
            return replace(column, values=values)
        return replace(column, mask=absent if column.mask is None else column.mask | absent)
    pa = package("pyarrow")
    rows = pa.array(np.arange(len(absent)), mask=absent)
    return Arrow(column.array.take(rows), column.field, column.dtype)
