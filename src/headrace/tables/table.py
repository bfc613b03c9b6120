"""Table: columns of one length, and rows taken from them many at once (see `gather`).

A table may be kept by columns or by rows: `records` is an array with one entry a row, and plain columns are fields of
it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption, BadPipe
from headrace.op import place
from headrace.tables.column import Arrow, Column, Ints, Plain, field_of
from headrace.tables.gather import Block, Plan


class Table:
    """Columns of one length. Its columns never change."""

    __slots__ = ("__weakref__", "_plans", "_settled", "blocks", "columns", "length", "records", "shipment")

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
        self._settled: Table | None = None
        self._plans: dict[tuple[str, ...], Plan] = {}

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
            plan = self._plans[names] = Plan(self._chosen(names), self.records)
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
            from headrace.tables.travel import ship, unship

            self._settled = unship(*ship(self))

    def __reduce__(self) -> tuple[Any, ...]:
        from headrace.tables.travel import ship, unship

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
        from headrace.tables.arrow import from_arrow, to_arrow
        from headrace.tables.packages import package

        places = np.concatenate([p for p, _ in parts])
        arrays = [to_arrow(c) for c in columns]
        if any(a.type != arrays[0].type for a in arrays):
            raise BadPipe(
                f"column {name!r} is {arrays[0].type} in one part and another type elsewhere; cast one of them"
            )
        joined = package("pyarrow").chunked_array(arrays)
        whole = from_arrow(joined, field_of(first)).take(np.argsort(places, kind="stable"))
        return replace(whole, dtype=first.dtype)
    values = [c.values for c in columns if isinstance(c, Plain)]
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
