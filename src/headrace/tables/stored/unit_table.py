"""UnitTable: a table that lies in units (row groups of files, chunks of a mapped table), of which some are in memory.

Rows are taken by position, from any number of units; the rows of a batch that lie in one unit are fetched together.
Units lie in slots of shared memory (`memory.cache`), so each is read once for all workers of the machine. In a slot,
the plain columns of a unit are kept as records, so that a batch costs one fetch a unit however many columns there are.
Behind the records stand text, lists and all else that has no fixed size, as Arrow keeps them:

    slot    | records: rows x bytes of a row | length | Arrow stream: offsets, bytes, validity ... | room to spare |

Each process keeps for itself only text for which the slot has no room, and the few types that cannot be taken out of
shared memory (see `ipc`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadPipe
from headrace.memory.cache import UnitCache
from headrace.op import Upcoming
from headrace.sources.underway import Underway
from headrace.tables.column import ArrowColumn, Column, Ints, NumpyColumn
from headrace.tables.convert.arrow_types import is_text
from headrace.tables.convert.from_arrow import from_arrow, takeable
from headrace.tables.gather import GatherPlan, fetched, scratch
from headrace.tables.ipc import ALIGN, bytes_of, stays_behind, store, stored
from headrace.tables.packages import pa, pc
from headrace.tables.records import RecordLayout
from headrace.tables.stored.cache import Cache
from headrace.tables.stored.resident import ResidentUnits
from headrace.tables.table import Table, check_names

SPARE = 1.25
"""A slot has room for so many times the text of the units that were measured: others may have more."""
MEASURED = 3
"""Units of which the text is measured."""
READ = 1 << 20
"""Bytes of a unit that are read at a time."""
Reader = Callable[[int, list[str]], Iterator[Any]]
"""Reads these columns of one unit, as pyarrow record batches."""
_Rows = tuple[NDArray[np.uint8], dict[str, ArrowColumn]]
"""Rows of a batch: the records as bytes, and the columns without a fixed size."""


class UnitTable:
    """`schema`: the columns. `masked`: those in which values may be missing. `ends`: the first row after each unit."""

    def __init__(
        self,
        schema: Any,
        masked: frozenset[str],
        ends: Ints,
        read: Reader,
        memory: int,
        text_bytes: Callable[[tuple[str, ...]], int],
        slots: UnitCache | None = None,
        together: bool = False,
        text_sizes: tuple[int, int] | None = None,
        prepared: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`text_bytes(names)`: bytes of a row in these columns, as the files say. `slots`, `text_sizes`: those of
        another process. `together`: all columns are read at once, because each reading looks at more than it gives.
        `prepared(unit)`: while it lasts, what is read of a unit is near."""
        self.schema = schema
        self._together = together
        self.ends = ends
        self.length = int(ends[-1]) if len(ends) else 0
        self._rows = np.diff(ends, prepend=0)
        """Of each unit."""
        self.largest = int(self._rows.max(initial=0))
        self._starts = ends - self._rows
        self._read = read
        self._prepared = prepared
        self._underway: Underway | None = None
        self.template = template = {field.name: _empty(field, field.name in masked) for field in schema}
        self._plain = {name: column for name, column in template.items() if isinstance(column, NumpyColumn)}
        self._arrow = {name: column for name, column in template.items() if isinstance(column, ArrowColumn)}
        self.layout = RecordLayout(self._plain)
        self._template = np.zeros(2, self.layout.dtype)
        self._fields = self.layout.columns(self._template)
        self._plans: dict[tuple[str, ...], GatherPlan] = {}
        self._own = [name for name, column in self._arrow.items() if stays_behind(column.array.type)]
        """Columns that each process keeps for itself."""
        self._shared = [name for name in self._arrow if name not in self._own]
        """Columns without a fixed size that lie in slots."""
        self.text_sizes = self._measured(text_bytes) if text_sizes is None else text_sizes
        """Bytes of a row in the columns `_shared`, and in the columns `_own`."""
        self._divide(memory, slots)

    def _measured(self, text_bytes: Callable[[tuple[str, ...]], int]) -> tuple[int, int]:
        """`text_sizes` as the text lies in memory. A footer says only how long the encoded text is, which is many times
        shorter where words repeat; so a few units are read, or `hold` would promise what does not fit."""
        found = []
        for names in (self._shared, self._own):
            size = text_bytes(tuple(names)) if names and self.length else 0
            for unit in {0, len(self.ends) // 2, len(self.ends) - 1} if size else ():
                taken = sum(array.nbytes for array in self._load_text(unit, names).values())
                size = max(size, -(-taken // max(1, int(self._rows[unit]))))
            found.append(size)
        return found[0], found[1]

    def _divide(self, memory: int, slots: UnitCache | None) -> None:
        """Divide the memory: how large a slot is, how many there are, and what each process has beside them."""
        number, rows, count = self.layout.dtype.itemsize, max(1, self.largest), len(self.ends)
        shared, own = self.text_sizes
        self._text_start = -(-rows * number // ALIGN) * ALIGN
        size = self._text_start
        if self._shared:
            empty = bytes_of({name: self._arrow[name].array for name in self._shared})
            size += int(rows * shared * (SPARE if count > MEASURED else 1)) + empty + 8 * ALIGN * len(self._shared)
        self._own_memory = memory * own // max(1, self.row_bytes)
        # While a unit is read it is there twice.
        fits = (memory - self._own_memory) // size - 1 if size else count
        self.slots = slots if slots is not None else UnitCache(max(1, min(fits, count)), max(1, size))
        fits = min(fits, self._own_memory // (rows * own) if own else count)
        self.hold = count if fits >= count else max(1, fits * 4 // 5)
        """Units that may stand open at a time: some slots are for those that come and go."""
        types = {name: self._arrow[name].array.type for name in self._shared}
        texts = {name: kind for name, kind in types.items() if is_text(kind)}
        self._resident = ResidentUnits(self.slots, count, number, texts) if self.slots.count >= count else None
        """Where every unit has a slot of its own: units that this process has read from."""
        self._views: dict[int, tuple[int, dict[str, Any] | None]] = {}
        """Of units: the address at which their text was last seen, and the arrays that look there."""
        self._texts: tuple[int, Cache[dict[str, Any]]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes in memory."""
        return self.layout.dtype.itemsize + sum(self.text_sizes)

    @property
    def texts(self) -> Cache[dict[str, Any]]:
        """Arrow arrays that are not in slots, by unit: one cache a process, for all its threads."""
        if self._texts is None or self._texts[0] != os.getpid():
            self._texts = (os.getpid(), Cache(self._own_memory))
        return self._texts[1]

    # --- taking -----------------------------------------------------------------------------------------------------

    def take(self, positions: Ints, names: tuple[str, ...] | None = None) -> Table:
        names = self.names if names is None else names
        plan = self._plans.get(names)
        if plan is None:
            check_names(names, self.names)
            fields = {n: self._fields[n] for n in names if n in self._plain}
            plan = self._plans[names] = GatherPlan(fields, self._template, whole=True)
        owners = np.searchsorted(self.ends, positions, side="right")
        texts = [name for name in names if name in self._arrow]
        rows, others = self._at_once(positions, owners, texts) or self._by_unit(positions, owners, texts)
        found, blocks = plan.lay(rows)
        found |= others
        return Table({name: found[name] for name in names}, len(positions), None, blocks)

    def _at_once(self, positions: Ints, owners: Ints, texts: list[str]) -> _Rows | None:
        """These rows, if all their units are resident."""
        resident = self._resident
        if resident is None or not resident.has(owners, texts):
            return None
        offsets = positions - self._starts[owners]
        columns = {}
        for name in texts:
            like, array = self._arrow[name], resident.text(name, owners, offsets)
            if array is None:
                return None
            # (By hand: `replace` costs as much as the offsets of a batch.)
            columns[name] = ArrowColumn(array, like.field, like.dtype, like.may_miss, resident.sound(name))
        return resident.records(owners, offsets), columns

    def _by_unit(self, positions: Ints, owners: Ints, names: list[str]) -> _Rows:
        """These rows, with one fetch for each unit; units that are in no slot are read."""
        units, offsets, back = self._grouped(positions, owners)
        rows = scratch(len(positions), self.layout.dtype.itemsize)
        texts: dict[str, list[Any]] = {name: [None] * len(units) for name in names}
        chosen = pa.array(offsets) if texts else None
        absent = self.slots.touch(unit for unit, _, _ in units)
        # Units that are in a slot come first. Where fewer fit than a batch needs, a unit that is read takes the slot of
        # one that was used already; in the order of the batch it would take that of the next, and all would be read.
        for turn in sorted(range(len(units)), key=lambda turn: units[turn][0] in absent):
            unit, start, stop = units[turn]
            some = None if chosen is None else chosen.slice(start, stop - start)
            self._fetch(unit, offsets[start:stop], rows[start:stop], texts, turn, some)
        columns = {}
        for name, parts in texts.items():
            like = self._arrow[name]
            columns[name] = replace(like, array=_taken(_joined(parts, like.field), back))
        return rows.take(back, 0), columns

    def _grouped(self, positions: Ints, owners: Ints) -> tuple[list[tuple[int, int, int]], Ints, Ints]:
        """Units with the span of their rows, the rows' places in their units, and which row each position becomes."""
        met, counts = np.unique(owners, return_counts=True)
        sort = np.argsort(owners, kind="stable")
        back = np.empty(len(positions), np.int64)
        back[sort] = np.arange(len(positions))
        stops = np.cumsum(counts).tolist()
        spans = zip(met.tolist(), [0, *stops[:-1]], stops, strict=True)
        return list(spans), (positions - self._starts[owners])[sort], back

    def row(self, position: int) -> dict[str, Any]:
        return self.take(np.array([position], np.int64)).row(0)

    def ahead(self) -> Upcoming:
        """Units are read before they are asked for, in threads of this process: of the tickets at hand, and of those
        that come next."""
        underway = self._underway = Underway(self.slots, self._make)

        def begin(positions: Sequence[int]) -> None:
            underway.begin(np.searchsorted(self.ends, np.asarray(positions), side="right").tolist())

        return Upcoming(begin, begin, underway.look(self.row_bytes, self.length))

    def _make(self, unit: int) -> None:
        """Read a unit into a slot, if it is in none."""
        self.slots.read(unit, lambda memory: None, partial(self._fill, unit), 0, int(self._rows[unit]))

    # --- reading ----------------------------------------------------------------------------------------------------

    def _fetch(
        self, unit: int, offsets: Ints, out: NDArray[np.uint8], texts: dict[str, list[Any]], turn: int, chosen: Any
    ) -> None:
        """Rows of one unit: plain columns as bytes into `out`, others into `texts` at `turn`; `chosen`: the offsets."""
        count, dtype = int(self._rows[unit]), self.layout.dtype

        def use(memory: memoryview) -> None:
            if out.size:
                fetched(np.frombuffer(memory, dtype, count), offsets, out)
            shared = self._view(unit, memory) if self._shared else {}
            if self._resident is not None:
                self._resident.add(unit, shared or {})
            for name, parts in texts.items():
                # Copied now, while nobody else may fill the slot.
                whole = shared[name] if shared and name in shared else self._text(unit, name)
                parts[turn] = _taken(whole, chosen)

        if self._underway is not None:
            self._underway.join(unit)
        self.slots.read(unit, use, lambda memory: self._fill(unit, memory), len(offsets), count)

    def _fill(self, unit: int, memory: memoryview) -> None:
        """Read a unit into its slot."""
        with self._prepared(unit):
            self._fill_prepared(unit, memory)

    def _fill_prepared(self, unit: int, memory: memoryview) -> None:
        count = int(self._rows[unit])
        records = np.frombuffer(memory, self.layout.dtype, count) if self.layout.dtype.itemsize else None
        texts: dict[str, list[Any]] = {name: [] for name in self._shared}
        for names in self._groups(count):
            plain = [name for name in names if name in self._plain]
            for at, batch in self._batches(unit, names):
                if records is not None and plain:
                    columns = {name: self._column(batch, name) for name in plain}
                    self.layout.fill(records[at : at + batch.num_rows], columns)
                for name in texts.keys() & names:
                    texts[name].append(batch.column(name))
        if texts:
            store(memory[self._text_start :], self._join_all(texts))

    def _view(self, unit: int, memory: memoryview) -> dict[str, Any] | None:
        """The text of a unit in its slot; None if it is longer than the slot has room for."""
        text = memory[self._text_start :]
        address: int = np.frombuffer(text, np.uint8, 1).__array_interface__["data"][0]
        known = self._views.get(unit)
        # A unit that comes into the same slot again lies there as before, byte for byte.
        if known is None or known[0] != address:
            if len(self._views) > 2 * self.slots.count:
                self._views.clear()
            known = self._views[unit] = (address, stored(text))
        return known[1]

    def _groups(self, rows: int) -> Iterator[list[str]]:
        """Columns that are read together: few of a large unit, for what is being read needs memory beside its slot."""
        names = list(self._plain)
        if self._together:
            yield [*names, *self._shared]
            return
        per_column = max(1, rows * self.layout.dtype.itemsize // max(1, len(names)))
        step = max(8, READ // per_column)
        for first in range(0, len(names), step):
            yield names[first : first + step]
        if self._shared:
            yield self._shared

    def _text(self, unit: int, name: str) -> Any:
        """A column that is not in the slot of its unit."""
        own = name in self._own
        names, size = (self._own if own else self._shared), self.text_sizes[own]

        def load(_: object) -> tuple[dict[str, Any], int]:
            found = self._load_text(unit, names)
            return found, sum(array.nbytes for array in found.values())

        return self.texts.get((unit, own), int(self._rows[unit]) * size, load)[name]

    def _load_text(self, unit: int, names: list[str]) -> dict[str, Any]:
        batches = [batch for _, batch in self._batches(unit, names)]
        return self._join_all({name: [batch.column(name) for batch in batches] for name in names})

    def _join_all(self, parts: dict[str, list[Any]]) -> dict[str, Any]:
        return {name: _joined(arrays, self._arrow[name].field) for name, arrays in parts.items()}

    def _batches(self, unit: int, names: list[str]) -> Iterator[tuple[int, Any]]:
        """The record batches of a unit, each with the number of its first row."""
        at, count = 0, int(self._rows[unit])
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
        if not isinstance(column, NumpyColumn) or (column.mask is not None and self._plain[name].mask is None):
            raise BadPipe(
                f"column {name!r} has missing values, but the files' statistics say that it has none: write them again"
            )
        return column


def _empty(field: Any, masked: bool) -> Column:
    """A column without rows: plain if every row of this field will be, with a mask if some may be missing."""
    pa.array([])  # imports pandas, if it is installed: here once, and not later in every forked worker
    empty = pa.nulls(0, field.type)
    column = from_arrow(empty, field)
    if isinstance(column, ArrowColumn):
        return replace(column, may_miss=masked)
    if masked and column.values.ndim > 1:
        return ArrowColumn(empty, field)  # lists of one size, some of them missing
    return replace(column, mask=np.zeros(0, np.bool_)) if masked else column


def _taken(array: Any, rows: Any) -> Any:
    """Rows of an array, which are known to be there."""
    function, unchecked = _take()
    return function.call([array, rows], unchecked)


@cache
def _take() -> tuple[Any, Any]:
    """Looked up once: a batch takes from every row group that it meets."""
    return pc.get_function("array_take"), pc.TakeOptions(boundscheck=False)


def _joined(parts: list[Any], field: Any) -> Any:
    """Pieces of one column as one array: lists of one size stay lists, though nothing may be missing in them."""
    kind = parts[0].type
    if kind == takeable(parts[0].slice(0, 0)).type and not pa.types.is_dictionary(kind):
        try:
            return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # more than 32-bit offsets can count, or what only `from_arrow` has words for
    whole = from_arrow(pa.chunked_array(parts), field)
    return whole.array if isinstance(whole, ArrowColumn) else pa.concat_arrays(parts)
