"""Tables on disk as sources: any row by its number, whole columns for many rows, with few row groups in memory.

A row group is the unit of reading. Units that were read last stay in memory up to `memory` bytes (see `unit_table`);
`shuffle()` of larger data uses an order that keeps few of them open (see `plan.parts`).

How many rows each unit has, and which columns may have missing values, is read when the pipe is made (of files, from
their footers), and goes to the workers with the pipe. Column choice, new names and filters are part of the source: what
is not asked for is not read. With a filter the rows that it keeps are counted when the pipe is made.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from headrace.brief import stable
from headrace.errors import BadOption, BadPipe
from headrace.memory.cache import UnitCache
from headrace.op import Here, Indexed
from headrace.plan.units import Units, choose_arrangement
from headrace.sources.pool import at_once
from headrace.tables.column import Column, Ints
from headrace.tables.convert.arrow_types import read_schema
from headrace.tables.convert.from_arrow import takeable_columns, takeable_schema
from headrace.tables.matching import check_expression, reason
from headrace.tables.packages import pa
from headrace.tables.source import Tabular, hashed
from headrace.tables.stored.unit_table import UnitTable
from headrace.tables.table import Table, check_names, renamed

MEMORY = 256 * 1024 * 1024
ROWS = 1 << 13
"""Rows that are decoded at a time: the memory that a row group needs while it is read, beside itself."""
FOOTERS = 4
"""One part in so many of the memory, at the most, is for the footers of open files."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoredTable:
    """A table that is stored in units. Each kind of storage writes `table`, or `read` and `count_in` where it knows
    better which bytes to read."""

    format: ClassVar[str]
    rows: Ints
    """Of each unit."""
    masked: frozenset[str]
    """Columns in which values may be missing."""
    sizes: dict[str, int]
    """Bytes of each column in all units, as far as that is known before they are read."""
    packed: bytes
    """The Arrow schema, serialized: it goes to workers that never import pyarrow."""
    weight: int = 0
    """Bytes that the footers of all files take in memory while they are open."""

    @property
    def remote(self) -> bool:
        """Whether units are fetched over a network."""
        return False

    def prepared(self, unit: int, columns: list[str], expression: Any, memory: int) -> AbstractContextManager[None]:
        """Have what is read of a unit here, so that reading it, in any number of pieces, waits for nothing."""
        return nullcontext()

    def schema(self) -> Any:
        return read_schema(self.packed)

    def bytes_of(self, names: set[str]) -> int:
        """About how many bytes a row of these columns takes."""
        total = sum(size for name, size in self.sizes.items() if name in names)
        return -(-total // max(1, int(self.rows.sum())))

    def count(self, expression: object) -> Ints:
        """How many rows of each unit an expression keeps."""
        try:
            units, count = range(len(self.rows)), partial(self.count_in, expression=expression)
            return np.array(at_once(count, units) if self.remote else [*map(count, units)], np.int64)
        except pa.ArrowInvalid as error:
            raise BadOption(f"filter({expression}) does not fit these columns: {reason(error)}") from None

    def count_in(self, unit: int, expression: object) -> int:
        return int(takeable_columns(self.table(unit, None)).filter(expression).num_rows)

    def read(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        """The record batches of one unit; footers of files that stay open take up to `memory` bytes."""
        found = self.table(unit, columns if expression is None else None)
        if expression is not None:
            found = takeable_columns(found).filter(expression)
        yield from found.select(columns).to_batches(ROWS)

    def table(self, unit: int, columns: list[str] | None) -> Any:
        """These columns (None: all) of a unit; it may have others too."""
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError


class OpenedTable:
    """The UnitTable of this process, once it is opened. To other processes go its shared memory and its text sizes."""

    def __init__(self, slots: UnitCache | None = None, text_sizes: tuple[int, int] | None = None) -> None:
        self.table: UnitTable | None = None
        self.slots = slots
        self.text_sizes = text_sizes

    def __reduce__(self) -> tuple[Any, ...]:
        known = self if self.table is None else self.table
        return (OpenedTable, (known.slots, known.text_sizes))


@dataclass(frozen=True, slots=True, eq=False)
class FromUnits(Tabular):
    """Rows of what is stored in units. `names` holds pairs (name there, name outside)."""

    stored: StoredTable
    names: tuple[tuple[str, str], ...]
    memory: int
    counts: Ints
    """How many rows of each unit there are, or the expression keeps."""
    digest: str = field(repr=False)
    """Of `counts`."""
    expression: Any = None
    opened: OpenedTable = field(default_factory=OpenedTable, repr=False, init=False)
    verb = "files"

    def __post_init__(self) -> None:
        if not isinstance(self.memory, int) or self.memory < 1:
            raise BadOption(f"memory= is a number of bytes, not {self.memory!r}")

    # --- what Tabular asks for --------------------------------------------------------------------------------------

    def size(self) -> int:
        return int(self.counts.sum())

    def get(self, position: int) -> dict[str, Any]:
        return self.table().row(position)

    def rows(self, positions: Ints, names: tuple[str, ...] | None = None) -> Table:
        return self.table().take(positions, names)

    def select(self, names: Iterable[str]) -> "FromUnits":
        inside = {outer: inner for inner, outer in self.names}
        names = tuple(dict.fromkeys(names))
        check_names(names, inside)
        return replace(self, names=tuple((inside[n], n) for n in names))

    def rename(self, new: Mapping[str, str]) -> "FromUnits":
        outer = renamed([outer for _, outer in self.names], new)
        pairs = tuple((inner, name) for (inner, _), name in zip(self.names, outer, strict=True))
        return replace(self, names=pairs)

    def where(self, expression: Any) -> "FromUnits":
        if any(inner != outer for inner, outer in self.names):
            raise BadPipe("filter() by expression comes before rename(): it uses the names that the files have")
        check_expression(expression, takeable_schema(self.stored.schema()))
        both = expression if self.expression is None else self.expression & expression
        counts = self.stored.count(both)
        return replace(self, expression=both, counts=counts, digest=hashed(counts))

    def template(self) -> Mapping[str, Column]:
        return self.table().template

    def with_gaps(self, gaps: Mapping[str, bool]) -> "FromUnits":
        more = {inner for inner, outer in self.names if outer in gaps}
        return replace(self, stored=replace(self.stored, masked=self.stored.masked | more))

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Tabular.index(self, inputs, here)
        assert found is not None
        found.units = self.units()
        if self.stored.remote:
            found.ahead = self.table().ahead()
        return found

    # --- units ------------------------------------------------------------------------------------------------------

    def units(self) -> Units:
        """Where units end, how many of them fit in memory, and their bytes."""
        table = self.table()
        return Units(table.ends, table.hold, table.length * table.row_bytes, table.largest * table.row_bytes)

    def table(self) -> UnitTable:
        if self.opened.table is None:
            schema = self.stored.schema()
            chosen = pa.schema([schema.field(inner).with_name(outer) for inner, outer in self.names])
            masked = frozenset(outer for inner, outer in self.names if inner in self.stored.masked)
            kept = np.flatnonzero(self.counts)
            ends = np.cumsum(self.counts[kept])
            footers = min(self.memory // FOOTERS, self.stored.weight)

            def prepared(unit: int) -> AbstractContextManager[None]:
                inner = [inner for inner, _ in self.names]
                return self.stored.prepared(int(kept[unit]), inner, self.expression, footers)

            def read(unit: int, names: list[str]) -> Iterator[Any]:
                inner = [inner for inner, outer in self.names if outer in names]
                outer = [outer for _, outer in self.names if outer in names]
                for batch in self.stored.read(int(kept[unit]), inner, self.expression, footers):
                    yield batch.select(inner).rename_columns(outer)

            self.opened.table = UnitTable(
                chosen,
                masked,
                ends,
                read,
                self.memory - footers,
                lambda names: self.stored.bytes_of({inner for inner, outer in self.names if outer in names}),
                self.opened.slots,
                together=self.expression is not None,
                text_sizes=self.opened.text_sizes,
                prepared=prepared,
            )
        return self.opened.table

    def describe(self) -> str:
        shown = f"{self.stored.format}({self.size()} rows in {self.stored.describe()}, {len(self.names)} columns"
        return shown + (f", filter={self.expression})" if self.expression is not None else ")")

    def identity(self) -> tuple[Any, ...]:
        # Paths are left out: files that were moved are still the same. The bytes decide the shuffled order.
        asked = stable(self.names), "" if self.expression is None else str(self.expression)
        return (self.stored.format, self.digest, choose_arrangement(self.units()), *asked)


def from_units(stored: StoredTable, memory: int | None = None) -> FromUnits:
    """All columns of a stored table."""
    names = tuple((name, name) for name in stored.schema().names)
    return FromUnits(stored, names, MEMORY if memory is None else memory, stored.rows, hashed(stored.rows))
