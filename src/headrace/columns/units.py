"""UnitTable: a table that lies in units (row groups of files, chunks of a mapped table), of which some are in memory.

Rows are taken by position, from any number of units. Of a batch, the rows of one unit are fetched together, units in the
order in which the batch first meets them: an order made of lanes (`plan.lanes`) then reads every unit once. Plain columns
of a unit are kept as records, so that a batch costs one fetch a unit however many columns there are.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.columns.arrow import from_arrow
from headrace.columns.cache import Cache
from headrace.columns.column import Arrow, Column, Ints, Plain
from headrace.columns.gather import Plan, fetched, scratch
from headrace.columns.packages import package
from headrace.columns.records import Layout
from headrace.columns.table import Table, check_names
from headrace.errors import BadPipe
from headrace.op import place

Batches = Callable[[int], Iterator[Any]]
"""Reads one unit, as pyarrow record batches."""


class UnitTable:
    """`schema`: the columns. `masked`: those in which values may be missing. `ends`: the first row after each unit."""

    def __init__(self, schema: Any, masked: frozenset[str], ends: Ints, read: Batches, memory: int) -> None:
        self.schema = schema
        self.ends = ends
        self.length = int(ends[-1]) if len(ends) else 0
        self.memory = memory
        self._starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        self._read = read
        self._masked = masked
        template = {field.name: _empty(field, field.name in masked) for field in schema}
        self._plain = {name: column for name, column in template.items() if isinstance(column, Plain)}
        self._arrow = {name: column for name, column in template.items() if isinstance(column, Arrow)}
        self.layout = Layout(self._plain, masked & self._plain.keys())
        records = np.empty(0, self.layout.dtype)
        self._template = Table({**self.layout.columns(records), **self._arrow}, 0, records)
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._caches: dict[int, Cache[Table]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def cache(self) -> Cache[Table]:
        """The units in memory; each process has its own, and all of them together keep to `memory`."""
        found = self._caches.get(os.getpid())
        if found is None:
            self._caches.clear()
            found = self._caches[os.getpid()] = Cache(self.memory // place.crew)
        return found

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns whose rows differ in size."""
        return tuple(self._arrow)

    def row_bytes(self) -> int:
        """Bytes of a row in memory, of the columns whose rows all have the same size."""
        return self.layout.dtype.itemsize

    # --- taking -----------------------------------------------------------------------------------------------------

    def take(self, positions: Ints, names: tuple[str, ...] | None = None) -> Table:
        names = self.names if names is None else names
        plan = self._plans.get(names)
        if plan is None:
            check_names(names, self.names)
            chosen = {n: self._template.columns[n] for n in names if n in self._plain}
            plan = self._plans[names] = Plan(chosen, self._template.records, whole=True)
        units, offsets, back = self._grouped(positions)
        width = self.layout.dtype.itemsize
        rows = scratch(len(positions), width)
        texts: dict[str, list[Any]] = {n: [] for n in names if n in self._arrow}
        for unit, start, stop in units:
            table = self._unit(unit)
            if width:
                fetched(table.records, offsets[start:stop], rows[start:stop])
            for name, parts in texts.items():
                parts.append(table.columns[name].take(offsets[start:stop]))
        found, blocks = plan.lay(_reordered(rows, back)) if width else ({}, [])
        for name, parts in texts.items():
            found[name] = _joined(parts, back)
        return Table({name: found[name] for name in names}, len(positions), None, blocks)

    def _grouped(self, positions: Ints) -> tuple[list[tuple[int, int, int]], Ints, Ints]:
        """Units with the span of their rows, the rows' places in their units, and which row each position becomes."""
        owners = np.searchsorted(self.ends, positions, side="right")
        met, first, which = np.unique(owners, return_index=True, return_inverse=True)
        turn = np.empty(len(met), np.int64)
        order = np.argsort(first, kind="stable")
        turn[order] = np.arange(len(met))
        sort = np.argsort(turn[which], kind="stable")
        back = np.empty(len(positions), np.int64)
        back[sort] = np.arange(len(positions))
        counts = np.bincount(turn[which], minlength=len(met))
        stops = np.cumsum(counts).tolist()
        spans = zip(met[order].tolist(), [0, *stops[:-1]], stops, strict=True)
        return list(spans), (positions - self._starts[owners])[sort], back

    def row(self, position: int) -> dict[str, Any]:
        unit = int(np.searchsorted(self.ends, position, side="right"))
        return self._unit(unit).row(position - int(self._starts[unit]))

    # --- reading ----------------------------------------------------------------------------------------------------

    def _unit(self, unit: int) -> Table:
        rows = int(self.ends[unit] - self._starts[unit])
        return self.cache.get(unit, rows * self.layout.dtype.itemsize, self._load)

    def _load(self, unit: int) -> tuple[Table, int]:
        length = int(self.ends[unit] - self._starts[unit])
        records = np.empty(length, self.layout.dtype)
        parts: dict[str, list[Any]] = {name: [] for name in self._arrow}
        at = 0
        for batch in self._read(unit):
            stop = at + batch.num_rows
            if stop > length:
                break
            self.layout.fill(records[at:stop], {n: self._column(batch, n) for n in self._plain})
            for name, found in parts.items():
                found.append(batch.column(name))
            at = stop
        if at != length:
            raise BadPipe(f"unit {unit} had {length} rows when the pipe was made and has another number now: make it again")
        columns: dict[str, Column] = self.layout.columns(records)
        size = records.nbytes
        for name, found in parts.items():
            column = from_arrow(package("pyarrow").chunked_array(found, self.schema.field(name).type), self.schema.field(name))
            column = column if isinstance(column, Arrow) else Arrow(_whole(found, self.schema.field(name)), column.field)
            columns[name] = column
            size += column.array.nbytes
        return Table({n: columns[n] for n in self.names}, length, records), size

    def _column(self, batch: Any, name: str) -> Plain:
        column = from_arrow(batch.column(name), self.schema.field(name))
        if not isinstance(column, Plain) or (column.mask is not None and name not in self._masked):
            raise BadPipe(f"column {name!r} has missing values, but the files' statistics say that it has none: write them again")
        return column


def _empty(field: Any, masked: bool) -> Column:
    """A column without rows: plain if every row of this field will be."""
    pa = package("pyarrow")
    empty = pa.array([], field.type) if not isinstance(field.type, pa.BaseExtensionType) else _empty_extension(pa, field)
    column = from_arrow(empty, field)
    if isinstance(column, Plain) and masked and column.values.ndim > 1:
        return Arrow(empty, field)  # lists of one size, some of them missing
    return column


def _empty_extension(pa: Any, field: Any) -> Any:
    return pa.ExtensionArray.from_storage(field.type, pa.array([], field.type.storage_type))


def _whole(parts: list[Any], field: Any) -> Any:
    pa = package("pyarrow")
    return pa.concat_arrays(parts) if parts else _empty(field, True).array  # type: ignore[union-attr]


def _reordered(rows: NDArray[np.uint8], back: Ints) -> NDArray[np.uint8]:
    width = rows.shape[1]
    taken: NDArray[np.uint8] = rows.reshape(-1).view(f"V{width}").take(back).view(np.uint8).reshape(len(back), width)
    return taken


def _joined(parts: list[Any], back: Ints) -> Arrow:
    pa = package("pyarrow")
    if len(parts) == 1:
        return parts[0].take(back)  # type: ignore[no-any-return]
    joined = from_arrow(pa.chunked_array([p.array for p in parts]), parts[0].field)
    whole = joined if isinstance(joined, Arrow) else Arrow(pa.concat_arrays([p.array for p in parts]), parts[0].field)
    return whole.take(back)
