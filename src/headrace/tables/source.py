"""Tables as sources: rows by position, and whole columns for many positions at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from headrace.brief import stable
from headrace.op import Here, Indexed, Source
from headrace.tables.column import Column, Ints
from headrace.tables.matching import matching
from headrace.tables.merge import with_gaps
from headrace.tables.table import Table


class Tabular(Source[dict[str, Any]]):
    """A source of rows to which verbs can push down a choice of columns, new names, and a choice of rows."""

    __slots__ = ()

    def select(self, names: Iterable[str]) -> "Tabular":
        raise NotImplementedError

    def rename(self, new: Mapping[str, str]) -> "Tabular":
        raise NotImplementedError

    def where(self, expression: object) -> "Tabular":
        """Only the rows for which the expression is true. It may use columns that `select` left out, where they are
        still there."""
        raise NotImplementedError

    def template(self) -> Mapping[str, Column]:
        """The columns with their types; they may have no rows."""
        raise NotImplementedError

    def with_gaps(self, gaps: Mapping[str, bool]) -> "Tabular":
        """The same rows, where values may be missing in these columns (see `merge.gaps`)."""
        raise NotImplementedError

    def rows(self, positions: Ints, names: tuple[str, ...] | None = None) -> Table:
        """The table of these rows."""
        raise NotImplementedError

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        assert found is not None
        rows, spot = self.rows, here.spot

        def take(positions: Ints, names: tuple[str, ...] | None) -> Table:
            spot.here = here
            spot.position = int(positions[0])
            return rows(positions, names)

        found.take = take
        return found

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return True


def hashed(rows: Ints) -> str:
    """The digest of an array of rows. It is made with the source, because every snapshot asks for it."""
    return blake2b(np.ascontiguousarray(rows).data, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class FromTable(Tabular):
    """A table in memory; all of it, or the rows `chosen`."""

    table: Table
    chosen: Ints | None = None
    digest: str = field(default="", repr=False)
    """Of the rows that are chosen."""
    verb = "frame"

    def size(self) -> int:
        return self.table.length if self.chosen is None else len(self.chosen)

    def get(self, position: int) -> dict[str, Any]:
        return self.table.row(position if self.chosen is None else int(self.chosen[position]))

    def rows(self, positions: Ints, names: tuple[str, ...] | None = None) -> Table:
        return self.table.take(positions if self.chosen is None else self.chosen[positions], names)

    def select(self, names: Iterable[str]) -> "FromTable":
        return replace(self, table=self.table.select(names))

    def rename(self, new: Mapping[str, str]) -> "FromTable":
        return replace(self, table=self.table.rename(new))

    def where(self, expression: object) -> "FromTable":
        kept = matching(self.table, expression)
        return self.only(kept if self.chosen is None else self.chosen[np.isin(self.chosen, kept)])

    def template(self) -> Mapping[str, Column]:
        return self.table.columns

    def with_gaps(self, gaps: Mapping[str, bool]) -> "FromTable":
        columns = {n: with_gaps(c, gaps[n]) if n in gaps else c for n, c in self.table.columns.items()}
        return replace(self, table=Table(columns, self.table.length))

    def only(self, chosen: Ints) -> "FromTable":
        """The same table, and of it these rows."""
        return replace(self, chosen=chosen, digest=hashed(chosen))

    def settle(self) -> None:
        self.table.settle()

    def describe(self) -> str:
        of = "" if self.chosen is None else f"of {self.table.length} "
        return f"frame({self.size()} {of}rows, {len(self.table.columns)} columns)"

    def identity(self) -> tuple[Any, ...]:
        return ("frame", self.size() if self.chosen is None else self.digest, stable(self.table.names))
