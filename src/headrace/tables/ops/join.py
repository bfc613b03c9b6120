"""Join: columns of a frame in memory added to rows, to frames, and to whole tables, by a key."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import BadOption, BadPipe
from headrace.op import Each, Flat, Here, Indexed, Positions, Take, as_input
from headrace.tables.column import Column, Ints
from headrace.tables.convert.forms import deliver
from headrace.tables.convert.rows import table_of_rows
from headrace.tables.lookup import Lookup
from headrace.tables.ops.select import is_row, row_by_row, spread_kept, table_form, with_take
from headrace.tables.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class Join(Each[Any, Any]):
    """Add the columns of `lookup` where the columns `on` hold its keys; `always`: every key is known to be there."""

    lookup: Lookup
    on: tuple[str, ...]
    always: bool = False
    columnar = as_input

    def apply(self, sample: object) -> Any:
        if is_row(sample):
            _check_new(self.lookup, sample)
            return {**sample, **self._added(table_of_rows([_key_of(sample, self.on)])).row(0)}
        table, form = table_form(sample, "join")
        return deliver(self._joined(table), form)

    def _added(self, table: Table) -> Table:
        found = rows_of(self.lookup, table, self.on)
        return Table(self.lookup.rows(found, self.always), len(found))

    def _joined(self, table: Table) -> Table:
        _check_new(self.lookup, table.columns)
        added = self._added(table)
        return Table({**table.columns, **added.columns}, table.length, None, table.blocks)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        def taken(below: Take, positions: Positions, names: tuple[str, ...] | None) -> Table:
            joined = self._joined(below(positions, None))
            return joined if names is None else joined.select(names)

        return row_by_row(with_take(self, inputs, here, taken))

    def describe(self) -> str:
        how = ", how='inner'" if self.always else ""
        return f"join({_shown(self.lookup, self.on)}, {len(self.lookup.values)} columns{how})"

    def identity(self) -> tuple[Any, ...]:
        return ("join", self.on, self.lookup.identity(), self.always)


@dataclass(frozen=True, slots=True, eq=False)
class Match(Flat[Any, Any]):
    """Only rows, and of frames the rows, whose key is in the lookup: the first half of an inner join."""

    lookup: Lookup
    on: tuple[str, ...]

    def spread(self, sample: object) -> Iterator[Any]:
        return spread_kept(
            sample, "join", lambda table: matched(self.lookup, table, self.on), lambda row: _key_of(row, self.on)
        )

    def describe(self) -> str:
        return f"match({_shown(self.lookup, self.on)})"

    def identity(self) -> tuple[Any, ...]:
        return ("match", self.on, self.lookup.identity())


def _shown(lookup: Lookup, on: tuple[str, ...]) -> str:
    pairs = zip(on, lookup.keys, strict=True)
    return ", ".join(here if here == there else f"{here} = {there}" for here, there in pairs)


def _check_new(lookup: Lookup, names: Container[str]) -> None:
    for name in lookup.values:
        if name in names:
            raise BadPipe(f"join() would give two columns the name {name!r}: rename() or leave out one of them")


def check_joined(lookup: Lookup, columns: Mapping[str, Column], on: tuple[str, ...]) -> None:
    """Refuse a join to rows of these columns, which may be empty, before anything runs."""
    _check_keys(on, columns)
    _check_new(lookup, columns)
    lookup.find([columns[name].take(np.arange(min(1, len(columns[name])))) for name in on])


def _check_keys(on: tuple[str, ...], names: Iterable[str]) -> None:
    names = tuple(names)
    for name in on:
        if name not in names:
            shown = ", ".join(map(repr, names[:20]))
            raise BadOption(
                f"join(): the rows that a frame is joined to have no column {name!r}, they have {shown}; if it has "
                f"another name there, write on={{'its name there': {name!r}}}"
            )


def rows_of(lookup: Lookup, table: Table, on: tuple[str, ...]) -> Ints:
    """Which row of the lookup belongs to each row of the table; -1 where there is none."""
    _check_keys(on, table.columns)
    return lookup.find([table.columns[name] for name in on])


def matched(lookup: Lookup, table: Table, on: tuple[str, ...]) -> Ints:
    """The rows of the table whose key is in the lookup."""
    return np.flatnonzero(rows_of(lookup, table, on) >= 0)


def _key_of(sample: dict[str, Any], on: tuple[str, ...]) -> dict[str, Any]:
    """Of one row its key."""
    _check_keys(on, sample)
    return {name: sample[name] for name in on}
