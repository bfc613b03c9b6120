"""Join: columns of a frame in memory added to rows, to frames, and to whole tables, by a key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import BadPipe
from headrace.op import Each, Flat, Here, Indexed, Positions, Take, as_input
from headrace.tables.column import Column
from headrace.tables.convert.forms import deliver
from headrace.tables.convert.frames import is_array
from headrace.tables.convert.rows import table_of_rows
from headrace.tables.lookup import Lookup
from headrace.tables.ops.select import is_row, row_by_row, spread_kept, table_form, with_take
from headrace.tables.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class Join(Each[Any, Any]):
    """Add the columns of `lookup` to rows that hold its keys; `always`: every key is known to be there."""

    lookup: Lookup
    always: bool = False
    columnar = as_input

    def apply(self, sample: object) -> Any:
        if is_row(sample):
            self.lookup.check_new(sample)
            return {**sample, **self._added(table_of_rows([_key_of(self.lookup, sample)])).row(0)}
        table, form = table_form(sample, "join")
        return deliver(self._joined(table), form)

    def _added(self, table: Table) -> Table:
        found = self.lookup.find(table.columns)
        return Table(self.lookup.rows(found, self.always), len(found))

    def _joined(self, table: Table) -> Table:
        self.lookup.check_new(table.columns)
        return Table({**table.columns, **self._added(table).columns}, table.length, None, table.blocks)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        def taken(below: Take, positions: Positions, names: tuple[str, ...] | None) -> Table:
            joined = self._joined(below(positions, None))
            return joined if names is None else joined.select(names)

        return row_by_row(with_take(self, inputs, here, taken))

    def describe(self) -> str:
        how = ", how='inner'" if self.always else ""
        return f"join({_shown(self.lookup)}, {len(self.lookup.values)} columns{how})"

    def identity(self) -> tuple[Any, ...]:
        return ("join", self.lookup.on, self.lookup.identity(), self.always)


@dataclass(frozen=True, slots=True, eq=False)
class Match(Flat[Any, Any]):
    """Only rows, and of frames the rows, whose key is in the lookup: the first half of an inner join."""

    lookup: Lookup
    chooses = True

    def spread(self, sample: object) -> Iterator[Any]:
        return spread_kept(sample, "join", self.lookup.matches, lambda row: _key_of(self.lookup, row))

    def describe(self) -> str:
        return f"match({_shown(self.lookup)})"

    def identity(self) -> tuple[Any, ...]:
        return ("match", self.lookup.on, self.lookup.identity())


def _shown(lookup: Lookup) -> str:
    pairs = zip(lookup.on, lookup.keys, strict=True)
    return ", ".join(here if here == there else f"{here} = {there}" for here, there in pairs)


def check_joined(lookup: Lookup, columns: Mapping[str, Column]) -> None:
    """Refuse a join to rows of these columns, which may be empty, before anything runs."""
    lookup.check_keys(columns)
    lookup.check_new(columns)
    lookup.find({name: columns[name].take(np.arange(min(1, len(columns[name])))) for name in lookup.on})


def _key_of(lookup: Lookup, row: dict[str, Any]) -> dict[str, Any]:
    """The key columns of one row."""
    lookup.check_keys(row)
    for name in lookup.on:
        if is_array(row[name]):
            raise BadPipe(
                f"column {name!r} of a row is an array: a key is one value a row. If these are batches, with text in "
                f"lists, put join() before batch()"
            )
    return {name: row[name] for name in lookup.on}
