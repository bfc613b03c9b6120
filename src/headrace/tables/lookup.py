"""Lookup: rows of a table by their keys, many at once. When two keys are the same is said in `join_keys`.

Several columns are one key together: each has its own numbers for its values, and the row is found by the numbers.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption, BadPipe
from headrace.tables.column import ArrowColumn, Column, Ints, NumpyColumn
from headrace.tables.join_keys import Keys
from headrace.tables.packages import pa
from headrace.tables.table import Table, check_names

BYTES = 64 << 20
"""A digest is made of columns of numbers of up to so many bytes: about 0.1 s, once."""
CELLS = 1 << 18
"""The same for other columns: so many values."""
PLAIN = (str, bytes, int, float, bool, type(None))
"""Kinds of objects whose text is the same everywhere."""


class Lookup:
    """`table` by its columns `keys`; each key occurs once. Rows whose key is missing are never found.

    `on`: the names of the key columns in the rows that are joined to it.
    """

    def __init__(self, table: Table, keys: tuple[str, ...], on: tuple[str, ...]) -> None:
        check_names(keys, table.columns)
        self.table = table
        self.keys = keys
        self.on = on
        self.values = tuple(name for name in table.names if name not in self.keys)
        self._columns = [Keys(name, table.columns[name]) for name in self.keys]
        self._codes, self._rows = self._ordered()
        self._direct = self._row_of_number() if len(self.keys) == 1 else None
        self._identity: tuple[Any, ...] | None = None

    def identity(self) -> tuple[Any, ...]:
        """What a snapshot knows it by: the names, how many rows, and the values, if there are not too many."""
        if self._identity is None:
            self._identity = (self.keys, self.values, self.table.length, digest(self.table))
        return self._identity

    def __reduce__(self) -> tuple[Any, ...]:
        return (Lookup, (self.table, self.keys, self.on))

    def _ordered(self) -> tuple[NDArray[Any], Ints]:
        """The numbers of all keys in order, and the rows that they stand for."""
        codes = self._together([column.codes for column in self._columns])
        rows = np.flatnonzero(codes != -1)
        rows = rows[np.argsort(codes[rows], kind="stable")]
        ranked = codes[rows]
        if (again := np.flatnonzero(ranked[1:] == ranked[:-1])).size:
            row = self.table.select(self.keys).row(int(rows[again[0]]))
            key = {name: v.item() if isinstance(v, np.generic) else v for name, v in row.items()}
            shown = ", ".join(f"{name} = {value!r}" for name, value in key.items())
            raise BadOption(f"join() needs each key once in the frame, but {shown} is there twice")
        return ranked, rows

    def _row_of_number(self) -> Ints:
        """Of a single column: the row for each number of a key; the last entry is for the number -1, and is -1."""
        rows = np.full(self._columns[0].count + 1, -1, np.int64)
        rows[self._codes] = self._rows
        return rows

    def _together(self, codes: list[Ints]) -> NDArray[Any]:
        """One number for the numbers of all columns: digits of a number whose places are as large as the columns."""
        largest = 1
        for column in self._columns:
            largest *= max(1, column.count)
        whole: NDArray[Any] = np.zeros(len(codes[0]), np.int64 if largest < 1 << 62 else object)
        known = np.ones(len(codes[0]), np.bool_)
        for column, part in zip(self._columns, codes, strict=True):
            whole = whole * max(1, column.count) + part
            known &= part >= 0
        whole[~known] = -1
        return whole

    def find(self, columns: Mapping[str, Column]) -> Ints:
        """The row of the table for each row of these columns; -1 where there is none, as for a key that is missing."""
        self.check_keys(columns)
        found = [keys.find(columns[name]) for keys, name in zip(self._columns, self.on, strict=True)]
        if self._direct is not None:
            return self._direct[found[0]]
        wanted = self._together(found)
        if not len(self._codes):
            return np.full(len(wanted), -1, np.int64)
        place = np.minimum(np.searchsorted(self._codes, wanted), len(self._codes) - 1)
        hit = self._codes[place] == wanted  # -1, a key that is missing, is none of the codes
        return np.where(hit.astype(np.bool_), self._rows[place], -1)

    def matches(self, table: Table) -> Ints:
        """The rows of the table whose key is here."""
        return np.flatnonzero(self.find(table.columns) >= 0)

    def check_keys(self, names: Collection[str]) -> None:
        """Refuse rows without the key columns."""
        for name in self.on:
            if name not in names:
                shown = ", ".join(map(repr, list(names)[:20]))
                raise BadOption(
                    f"join(): the rows that a frame is joined to have no column {name!r}, they have {shown}; if it has "
                    f"another name there, write on={{'its name there': {name!r}}}"
                )

    def check_new(self, names: Container[str]) -> None:
        """Refuse rows that already have a column that the join would add."""
        for name in self.values:
            if name in names:
                raise BadPipe(f"join() would give two columns the name {name!r}: rename() or leave out one of them")

    def rows(self, found: Ints, always: bool) -> dict[str, Column]:
        """The other columns of these rows; where -1 stands they are missing, unless `always` says that none is."""
        if not self.table.length:
            return {name: _nothing(self.table.columns[name], len(found)) for name in self.values}
        if not self.values:
            return {}
        absent = found < 0
        part = self.table.take(np.where(absent, 0, found), self.values)
        if always:
            return part.columns
        return {name: _with_holes(column, absent) for name, column in part.columns.items()}


def _nothing(column: Column, rows: int) -> Column:
    """As many missing values of the type of a column that has no rows."""
    if isinstance(column, ArrowColumn):
        return replace(column, array=pa.nulls(rows, column.array.type), may_miss=True)
    if column.values.dtype.hasobject:
        return replace(column, values=np.full((rows, *column.values.shape[1:]), None, object), mask=None)
    return replace(
        column, values=np.zeros((rows, *column.values.shape[1:]), column.values.dtype), mask=np.ones(rows, bool)
    )


def _with_holes(column: Column, absent: NDArray[np.bool_]) -> Column:
    if isinstance(column, NumpyColumn):
        if column.values.dtype.hasobject:
            values = column.values.copy()
            values[absent] = None
            return replace(column, values=values)
        mask = absent if column.mask is None else column.mask | absent.reshape(-1, *[1] * (column.mask.ndim - 1))
        return replace(column, mask=mask)
    rows = pa.array(np.arange(len(absent)), mask=absent)
    return replace(column, array=column.array.take(rows), may_miss=True)


def digest(table: Table) -> str | None:
    """Of all values in order, the same in every process and release; None where there are too many of them, or where
    some have no text of their own."""
    found = blake2b(digest_size=8)
    for name, column in table.columns.items():
        content = _bytes_of(column)
        if content is None:
            return None
        found.update(repr(name).encode())
        found.update(content)
    return found.hexdigest()


def _bytes_of(column: Column) -> bytes | None:
    if isinstance(column, ArrowColumn):
        return None if len(column) > CELLS else repr(column.array.to_pylist()).encode("utf-8", "surrogatepass")
    if not column.values.dtype.hasobject:
        if column.values.nbytes > BYTES:
            return None
        if column.mask is None:
            return column.values.tobytes()
        shown = np.where(column.mask, np.zeros((), column.values.dtype), column.values)
        return shown.tobytes() + column.mask.tobytes()
    objects = column.values.reshape(-1).tolist()
    if len(objects) > CELLS or not all(isinstance(one, PLAIN) for one in objects):
        return None
    return repr(objects).encode("utf-8", "surrogatepass")
