"""UnitTable: a table that lies in units (row groups of files, chunks of a mapped table), of which some are in memory.

Rows are taken by position, from any number of units; of a batch, the rows of one unit are fetched together. Plain
columns of a unit are kept as records, so that a batch costs one fetch a unit however many columns there are. They lie
in slots of shared memory (`share.slots`): a unit is read once for all workers of the machine. Text and all that has no
fixed size is kept by each process for itself.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadPipe
from headrace.memory.cache import Slots
from headrace.tables.arrow import from_arrow
from headrace.tables.cache import Cache
from headrace.tables.column import ArrowColumn, Column, Ints, NumpyColumn
from headrace.tables.gather import GatherPlan, fetched, scratch
from headrace.tables.packages import package
from headrace.tables.records import RecordLayout
from headrace.tables.table import Table, check_names

READ = 1 << 20
"""Bytes of a unit that are read at a time."""
Batches = Callable[[int, list[str]], Iterator[Any]]
"""Reads these columns of one unit, as pyarrow record batches."""


class UnitTable:
    """`schema`: the columns. `masked`: those in which values may be missing. `ends`: the first row after each unit."""

    def __init__(
        self,
        schema: Any,
        masked: frozenset[str],
        ends: Ints,
        read: Batches,
        memory: int,
        text_bytes: Callable[[tuple[str, ...]], int],
        slots: Slots | None = None,
        together: bool = False,
        text_size: int | None = None,
    ) -> None:
        """`together`: all columns are read at once, because each reading has to look at more than what it gives.

        `text_size`: bytes of a row's text in memory, where another process has measured it.
        """
        self.schema = schema
        self._together = together
        self.ends = ends
        self.length = int(ends[-1]) if len(ends) else 0
        self._starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        self._read = read
        self._masked = masked
        self.template = template = {field.name: _empty(field, field.name in masked) for field in schema}
        self._plain = {name: column for name, column in template.items() if isinstance(column, NumpyColumn)}
        self._arrow = {name: column for name, column in template.items() if isinstance(column, ArrowColumn)}
        self.layout = RecordLayout(self._plain, masked & self._plain.keys())
        self._template = np.zeros(2, self.layout.dtype)
        self._fields = self.layout.columns(self._template)
        self._plans: dict[tuple[str, ...], GatherPlan] = {}
        self.text_size = self._measured(text_bytes) if text_size is None else text_size
        """Bytes that a row takes in the columns without a fixed size."""
        self._divide(memory, self.text_size, slots)

    def _measured(self, text_bytes: Callable[[tuple[str, ...]], int]) -> int:
        """Bytes of a row's text as it lies in memory. A footer knows only how long the encoded text is, which is many
        times shorter where words repeat; so a few units are looked at, or `hold` would promise what does not fit."""
        if not self._arrow or not self.length:
            return 0
        size = text_bytes(tuple(self._arrow))
        for unit in {0, len(self.ends) // 2, len(self.ends) - 1}:
            _, taken = self._load_text(unit)
            size = max(size, -(-taken // max(1, self._rows(unit))))
        return size

    def _divide(self, memory: int, text: int, slots: Slots | None) -> None:
        """How much of the memory is for numbers, and how much for text."""
        number = self.layout.dtype.itemsize
        rows = int((self.ends - self._starts).max(initial=1)) if len(self.ends) else 1
        self._text_memory = memory * text // max(1, number + text)
        count = len(self.ends)
        # While a unit is read it is there twice.
        fits = (memory - self._text_memory) // (rows * number) - 1 if number else count
        self.slots = slots if slots is not None else Slots(max(1, min(fits, count)), max(1, rows * number))
        fits = min(fits, self._text_memory // max(1, rows * text) if text else count)
        self.hold = count if fits >= count else max(1, fits * 4 // 5)
        """Units that may stand open at a time: some slots are for those that come and go."""
        self._texts: tuple[int, Cache[dict[str, ArrowColumn]]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def texts(self) -> Cache[dict[str, ArrowColumn]]:
        """Arrow columns in memory: one cache a process, for all its threads."""
        if self._texts is None or self._texts[0] != os.getpid():
            self._texts = (os.getpid(), Cache(self._text_memory))
        return self._texts[1]

    # --- taking -----------------------------------------------------------------------------------------------------

    def take(self, positions: Ints, names: tuple[str, ...] | None = None) -> Table:
        names = self.names if names is None else names
        plan = self._plans.get(names)
        if plan is None:
            check_names(names, self.names)
            fields = {n: self._fields[n] for n in names if n in self._plain}
            plan = self._plans[names] = GatherPlan(fields, self._template, whole=True)
        units, offsets, back = self._grouped(positions)
        width = self.layout.dtype.itemsize
        rows = scratch(len(positions), width)
        texts: dict[str, list[Any]] = {n: [] for n in names if n in self._arrow}
        if width:
            self.slots.touch(unit for unit, _, _ in units)
        for unit, start, stop in units:
            chosen = offsets[start:stop]
            if width:
                self._fetch(unit, chosen, rows[start:stop])
            if texts:
                columns = self._text(unit)
                for name, parts in texts.items():
                    parts.append(columns[name].take(chosen))
        found, blocks = plan.lay(_reordered(rows, back)) if width else (self._empty(names, len(positions)), [])
        for name, parts in texts.items():
            found[name] = _joined(parts).take(back)
        return Table({name: found[name] for name in names}, len(positions), None, blocks)

    def _empty(self, names: tuple[str, ...], rows: int) -> dict[str, Column]:
        """Columns whose values have no bytes: lists of a fixed size of 0."""
        plain = {name: self._plain[name] for name in names if name in self._plain}
        return {n: replace(c, values=np.empty((rows, *c.values.shape[1:]), c.values.dtype)) for n, c in plain.items()}

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
        return self.take(np.array([position], np.int64)).row(0)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _rows(self, unit: int) -> int:
        return int(self.ends[unit] - self._starts[unit])

    def _fetch(self, unit: int, offsets: Ints, out: Any) -> None:
        """Rows of one unit, as bytes."""
        count, dtype = self._rows(unit), self.layout.dtype

        def make(memory: memoryview) -> None:
            records = np.frombuffer(memory, dtype, count)
            for names in self._groups(count):
                for at, batch in self._batches(unit, names):
                    part = {name: self._column(batch, name) for name in names}
                    self.layout.fill(records[at : at + batch.num_rows], part)

        self.slots.read(unit, lambda memory: _copy(memory, dtype, count, offsets, out), make)

    def _groups(self, rows: int) -> Iterator[list[str]]:
        """Columns that are read together: few of a large unit, for what is being read needs memory beside its slot."""
        names = list(self._plain)
        per_column = max(1, rows * self.layout.dtype.itemsize // max(1, len(names)))
        step = len(names) if self._together else max(8, READ // per_column)
        for first in range(0, len(names), step):
            yield names[first : first + step]

    def _text(self, unit: int) -> dict[str, ArrowColumn]:
        return self.texts.get(unit, self._rows(unit) * self.text_size, self._load_text)

    def _load_text(self, unit: int) -> tuple[dict[str, ArrowColumn], int]:
        batches = [batch for _, batch in self._batches(unit, list(self._arrow))]
        found = {n: _joined([replace(c, array=b.column(n)) for b in batches]) for n, c in self._arrow.items()}
        return found, sum(column.array.nbytes for column in found.values())

    def _batches(self, unit: int, names: list[str]) -> Iterator[tuple[int, Any]]:
        """The record batches of a unit, each with the number of its first row."""
        at, count = 0, self._rows(unit)
        for batch in self._read(unit, names):
            if at + batch.num_rows > count:
                break
            yield at, batch
            at += batch.num_rows
        if at != count:
            raise BadPipe(
                f"unit {unit} had {count} rows when the pipe was made and has another number now: make it again"
            )

    def _column(self, batch: Any, name: str) -> NumpyColumn:
        column = from_arrow(batch.column(name), self.schema.field(name))
        if not isinstance(column, NumpyColumn) or (column.mask is not None and name not in self._masked):
            raise BadPipe(
                f"column {name!r} has missing values, but the files' statistics say that it has none: write them again"
            )
        return column


def _empty(field: Any, masked: bool) -> Column:
    """A column without rows: plain if every row of this field will be."""
    pa = package("pyarrow")
    empty = (
        pa.array([], field.type) if not isinstance(field.type, pa.BaseExtensionType) else _empty_extension(pa, field)
    )
    column = from_arrow(empty, field)
    if isinstance(column, NumpyColumn) and masked and column.values.ndim > 1:
        return ArrowColumn(empty, field)  # lists of one size, some of them missing
    return replace(column, may_miss=masked) if isinstance(column, ArrowColumn) else column


def _empty_extension(pa: Any, field: Any) -> Any:
    return pa.ExtensionArray.from_storage(field.type, pa.array([], field.type.storage_type))


def _reordered(rows: NDArray[np.uint8], back: Ints) -> NDArray[np.uint8]:
    width = rows.shape[1]
    taken: NDArray[np.uint8] = rows.reshape(-1).view(f"V{width}").take(back).view(np.uint8).reshape(len(back), width)
    return taken


def _copy(memory: memoryview, dtype: Any, count: int, offsets: Ints, out: Any) -> None:
    fetched(np.frombuffer(memory, dtype, count), offsets, out)


def _joined(parts: list[ArrowColumn]) -> ArrowColumn:
    """Pieces of one column as one: lists of one size stay lists, though nothing may be missing in them."""
    pa = package("pyarrow")
    first = parts[0]
    if len(parts) == 1 and not _is_view(pa, first.array.type):
        return first
    whole = from_arrow(pa.chunked_array([p.array for p in parts]), first.field)
    array = whole.array if isinstance(whole, ArrowColumn) else pa.concat_arrays([p.array for p in parts])
    return replace(first, array=array)


def _is_view(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
