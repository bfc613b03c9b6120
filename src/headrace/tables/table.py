"""Table: columns of one length, and rows taken from them many at once (see `gather`).

A table may be kept by columns or by rows. Where it is kept by rows, `records` is an array with one entry a row, and
plain columns are its fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.tables.column import Column, Ints
from headrace.tables.gather import Block, GatherPlan


class Table:
    """Columns of one length. Its columns never change."""

    __slots__ = ("__weakref__", "_plans", "_settled", "blocks", "columns", "length", "packed", "records")

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
        self.packed: Any = None
        """What this table is sent as, once it was sent (see `table_transfer`)."""
        self._settled: Table | None = None
        """The same table in shared memory."""
        self._plans: dict[tuple[str, ...], GatherPlan] = {}

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
        if self._settled is not None:
            return self._settled.take(positions, names)
        names = self.names if names is None else names
        plan = self._plans.get(names)
        if plan is None:
            plan = self._plans[names] = GatherPlan(self._chosen(names), self.records)
        found, blocks = plan.gather(positions)
        return Table({name: found[name] for name in names}, len(positions), None, blocks)

    def _chosen(self, names: tuple[str, ...]) -> dict[str, Column]:
        check_names(names, self.columns)
        return {name: self.columns[name] for name in names}

    def row(self, row: int) -> dict[str, Any]:
        """One row, as values of numpy and Python; a missing value is None."""
        return {name: column.at(row) for name, column in self.columns.items()}

    def select(self, names: Iterable[str]) -> "Table":
        chosen = self._chosen(tuple(names))
        blocks = [(members, block) for members, block in self.blocks if all(m in chosen for m in members)]
        return Table(chosen, self.length, self.records, blocks)

    def rename(self, new: Mapping[str, str]) -> "Table":
        named = renamed(self.columns, new)
        blocks = [(tuple(new.get(n, n) for n in names), block) for names, block in self.blocks]
        return Table(dict(zip(named, self.columns.values(), strict=True)), self.length, self.records, blocks)

    def settle(self) -> None:
        """Lay the table out in shared memory: many columns are then gathered several times as fast, also here."""
        if self._settled is None and len(self.columns) > 1:
            from headrace.tables.table_transfer import pack_table, unpack_table

            self._settled = unpack_table(*pack_table(self))

    def __reduce__(self) -> tuple[Any, ...]:
        from headrace.tables.table_transfer import pack_table, unpack_table

        return unpack_table, pack_table(self)


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
