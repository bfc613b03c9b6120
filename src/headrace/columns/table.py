"""Table: columns of one length, and the gather: many rows taken at once, one vectorised call per column or less.

    take(positions)  ->  a table of those rows, in that order; numbers are written straight into the memory that
                         travels to the consumer (`place.empty`)

Columns of one dtype are gathered into one *block* of shape (columns, rows), so that a batch of a hundred columns
travels as one array. A table may also be kept by rows: `records` is an array with one entry a row, and plain columns are
fields of it. A row is then fetched whole, with one cache miss where a hundred columns have a hundred, and the fields are
laid out as columns afterwards.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.columns.column import Arrow, Column, Ints, Plain, field_of
from headrace.errors import BadOption, BadPipe
from headrace.op import place

Block = tuple[tuple[str, ...], NDArray[Any]]
"""Names, and an array with one row for each of them."""
LINE = 64
"""Bytes that a processor fetches at once."""


class Table:
    """Columns of one length. Its columns never change."""

    __slots__ = ("__weakref__", "_plans", "blocks", "columns", "length", "records", "shipment")

    def __init__(
        self,
        columns: dict[str, Column],
        length: int,
        records: NDArray[Any] | None = None,
        blocks: Sequence[Block] = (),
    ) -> None:
        self.columns = columns
        self.length = length
        self.records = records
        self.blocks = blocks
        self.shipment: Any = None
        """What this table travels as, once it has (see `travel`)."""
        self._plans: dict[tuple[str, ...], _Plan] = {}

    @classmethod
    def of(cls, columns: dict[str, Column]) -> "Table":
        """A table of columns that may or may not be of one length."""
        first = next(iter(columns))
        length = len(columns[first])
        for name, column in columns.items():
            if len(column) != length:
                raise BadOption(f"column {name!r} has {len(column)} rows, but {first!r} has {length}: make them equal")
        return cls(columns, length)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def take(self, positions: Ints, names: tuple[str, ...] | None = None) -> "Table":
        """These rows, in this order; only these columns, if they are named."""
        names = self.names if names is None else names
        plan = self._plans.get(names)
        if plan is None:
            plan = self._plans[names] = _Plan(self, names)
        found, blocks = plan.gather(positions)
        return Table({name: found[name] for name in names}, len(positions), None, blocks)

    def row(self, row: int) -> dict[str, Any]:
        """One row, as values of numpy and Python; a missing value is None."""
        return {name: column.at(row) for name, column in self.columns.items()}

    def select(self, names: Iterable[str]) -> "Table":
        names = tuple(names)
        check_names(names, self.columns)
        kept = set(names)
        blocks = [(members, block) for members, block in self.blocks if kept.issuperset(members)]
        return Table({n: self.columns[n] for n in names}, self.length, self.records, blocks)

    def rename(self, new: Mapping[str, str]) -> "Table":
        named = renamed(self.columns, new)
        blocks = [(tuple(new.get(n, n) for n in names), block) for names, block in self.blocks]
        return Table(dict(zip(named, self.columns.values(), strict=True)), self.length, self.records, blocks)

    def __reduce__(self) -> tuple[Any, ...]:
        from headrace.columns.travel import ship, unship

        return unship, ship(self)


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise for a column that does not exist, with the ones that do."""
    known = tuple(known)
    for name in names:
        if name not in known:
            shown = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            raise BadOption(f"there is no column {name!r}; there are: {shown}")


def renamed(names: Iterable[str], new: Mapping[str, str]) -> list[str]:
    names = list(names)
    check_names(new, names)
    found = [new.get(name, name) for name in names]
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise BadOption(f"rename() would give two columns the name {twice!r}")
    return found


class _Plan:
    """Which columns are gathered together, worked out once for each choice of names."""

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        check_names(names, table.columns)
        self._columns = {name: table.columns[name] for name in names}
        self._records = table.records
        self._runs: list[tuple[int, int, np.dtype[Any], tuple[str, ...]]] = []
        """Neighbouring fields of one dtype: first byte, last byte, dtype, names."""
        self._groups: list[tuple[np.dtype[Any], tuple[str, ...], list[NDArray[Any]]]] = []
        self._single: list[str] = []
        fields: list[tuple[int, str]] = []
        groups: dict[np.dtype[Any], list[str]] = {}
        for name, column in self._columns.items():
            if not isinstance(column, Plain) or column.mask is not None or column.values.ndim != 1:
                self._single.append(name)
            elif (offset := _offset(table.records, column.values)) is not None:
                fields.append((offset, name))
            elif column.values.flags.c_contiguous and not column.values.dtype.hasobject:
                groups.setdefault(column.values.dtype, []).append(name)
            else:
                self._single.append(name)
        if table.records is not None and len(fields) * LINE < table.records.itemsize:
            self._single += [name for _, name in fields]  # cheaper than whole rows
            fields = []
        for offset, name in sorted(fields):
            self._add_field(offset, name)
        for dtype, members in groups.items():
            self._groups.append((dtype, tuple(members), [_values(self._columns[n]) for n in members]))

    def _add_field(self, offset: int, name: str) -> None:
        dtype = _values(self._columns[name]).dtype
        stop = offset + dtype.itemsize
        if self._runs:
            start, end, same, names = self._runs[-1]
            if end == offset and same == dtype:
                self._runs[-1] = (start, stop, dtype, (*names, name))
                return
        self._runs.append((offset, stop, dtype, (name,)))

    def gather(self, positions: Ints) -> tuple[dict[str, Column], list[Block]]:
        found: dict[str, Column] = {}
        blocks: list[Block] = []
        if self._runs:
            rows = _fetched(self._records, positions)
            for start, stop, dtype, names in self._runs:
                block = place.empty((len(names), len(positions)), dtype)
                block[...] = rows[:, start:stop].view(dtype).T
                blocks.append((names, block))
        for dtype, names, arrays in self._groups:
            block = place.empty((len(names), len(positions)), dtype)
            for array, out in zip(arrays, block, strict=True):
                array.take(positions, None, out, "clip")  # any other mode gathers into a buffer first
            blocks.append((names, block))
        for names, block in blocks:
            for name, values in zip(names, block, strict=True):
                column = self._columns[name]
                found[name] = Plain(values, None, column.field, column.dtype)
        for name in self._single:
            found[name] = _taken(self._columns[name], positions)
        return found, blocks


def _values(column: Column) -> NDArray[Any]:
    assert isinstance(column, Plain)
    return column.values


def _offset(records: NDArray[Any] | None, values: NDArray[Any]) -> int | None:
    """Where in a record these values lie, if they are a field of the records."""
    if records is None or values.strides[0] != records.itemsize or len(values) != len(records):
        return None
    offset: int = values.__array_interface__["data"][0] - records.__array_interface__["data"][0]
    return offset if 0 <= offset and offset + values.itemsize <= records.itemsize else None


def _taken(column: Column, positions: Ints) -> Column:
    if isinstance(column, Arrow):
        return column.take(positions)
    values = _gathered(column.values, positions)
    return replace(column, values=values, mask=None if column.mask is None else _gathered(column.mask, positions))


def _gathered(values: NDArray[Any], positions: Ints) -> NDArray[Any]:
    out: NDArray[Any] = place.empty((len(positions), *values.shape[1:]), values.dtype)
    if values.flags.c_contiguous:
        values.take(positions, 0, out, "clip")
    else:
        out[...] = values[positions]  # take() would first copy the whole column into one piece
    return out


class _Scratch(threading.local):
    memory: NDArray[np.uint8] = np.empty(0, np.uint8)


_scratch = _Scratch()


def _fetched(records: Any, positions: Ints) -> NDArray[np.uint8]:
    """Whole records, as rows of bytes, in memory that the next call uses again."""
    size = records.itemsize * len(positions)
    if _scratch.memory.nbytes < size:
        _scratch.memory = np.empty(size, np.uint8)
    raw = _scratch.memory[:size]
    records.view(f"V{records.itemsize}").take(positions, 0, raw.view(f"V{records.itemsize}"), "clip")
    return raw.reshape(len(positions), records.itemsize)


def merge(length: int, parts: Sequence[tuple[Ints, Table]]) -> Table:
    """One table out of several: the rows of each go to its places. They must have the same columns."""
    first = parts[0][1]
    if len(parts) == 1 and len(parts[0][0]) == length:
        return first
    for _, table in parts:
        if table.names != first.names:
            raise BadPipe(
                f"these tables do not have the same columns: {', '.join(first.names)} and {', '.join(table.names)}; "
                f"select() the ones that they share"
            )
    return Table({name: _merged(length, name, parts) for name in first.names}, length)


def _merged(length: int, name: str, parts: Sequence[tuple[Ints, Table]]) -> Column:
    columns = [table.columns[name] for _, table in parts]
    first = columns[0]
    if isinstance(first, Arrow) or any(isinstance(c, Arrow) for c in columns):
        from headrace.columns.arrow import from_arrow, to_arrow
        from headrace.columns.packages import package

        places = np.concatenate([p for p, _ in parts])
        arrays = [to_arrow(c) for c in columns]
        if any(a.type != arrays[0].type for a in arrays):
            raise BadPipe(f"column {name!r} is {arrays[0].type} in one part and another type elsewhere; cast one of them")
        joined = package("pyarrow").chunked_array(arrays)
        whole = from_arrow(joined, field_of(first)).take(np.argsort(places, kind="stable"))
        return replace(whole, dtype=first.dtype)
    values = [_values(c) for c in columns]
    if any(v.dtype != values[0].dtype or v.shape[1:] != values[0].shape[1:] for v in values):
        kinds = " and ".join(sorted({f"{v.dtype}{list(v.shape[1:]) or ''}" for v in values}))
        raise BadPipe(f"column {name!r} is {kinds} in different parts: cast them to one type first")
    out = place.empty((length, *values[0].shape[1:]), values[0].dtype)
    masks = [c.mask for c in columns if isinstance(c, Plain)]
    mask = np.zeros(length, np.bool_) if any(m is not None for m in masks) else None
    for (places, _), part, part_mask in zip(parts, values, masks, strict=True):
        out[places] = part
        if mask is not None and part_mask is not None:
            mask[places] = part_mask
    return replace(first, values=out, mask=mask)
