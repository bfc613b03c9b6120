"""Join: columns of a frame in memory added to rows, to frames, and to whole tables, by a key."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Each, Flat, Here, Indexed
from headrace.tables.ops.select import table_form


@dataclass(frozen=True, slots=True, eq=False)
class Join(Each[Any, Any]):
    """Add the columns of `lookup` where the columns `on` hold its keys; `always`: every key is known to be there."""

    lookup: Any
    on: tuple[str, ...]
    always: bool = False

    def apply(self, sample: Any) -> Any:
        from headrace.tables.forms import deliver

        if isinstance(sample, dict) and not _is_frame(sample):
            from headrace.tables.rows import table_of_rows

            added = self._added(table_of_rows([{name: sample[name] for name in self.on}]))
            return {**sample, **added.row(0)}
        table, form = table_form(sample, "join")
        return deliver(self._joined(table), form)

    def _added(self, table: Any) -> Any:
        from headrace.tables.table import Table

        found = self.lookup.find([table.columns[name] for name in self.on])
        return Table(self.lookup.rows(found, self.always), len(found))

    def _joined(self, table: Any) -> Any:
        from headrace.tables.table import Table

        added = self._added(table)
        both = [name for name in added.names if name in table.columns]
        if both:
            raise BadPipe(f"join() would give two columns the name {both[0]!r}: rename() or leave out one of them")
        return Table({**table.columns, **added.columns}, table.length, None, table.blocks)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        import numpy as np

        found, below = Each.index(self, inputs, here), inputs[0].take
        if found is None or below is None:
            return found

        def take(positions: Any, names: tuple[str, ...] | None) -> Any:
            joined = self._joined(below(positions, None))
            return joined if names is None else joined.select(names)

        found.take = take
        found.get = lambda position: take(np.array([position]), None).row(0)
        return found

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0]

    def describe(self) -> str:
        return f"join({', '.join(self.on)}, {len(self.lookup.values)} columns)"

    def identity(self) -> tuple[Any, ...]:
        return ("join", self.on, self.lookup.values)


@dataclass(frozen=True, slots=True, eq=False)
class Match(Flat[Any, Any]):
    """Only rows, and of frames the rows, whose key is in the lookup: the first half of an inner join."""

    lookup: Any
    on: tuple[str, ...]

    def spread(self, sample: Any) -> Iterator[Any]:
        import numpy as np

        from headrace.tables.forms import deliver
        from headrace.tables.rows import table_of_rows

        if isinstance(sample, dict) and not _is_frame(sample):
            keys = table_of_rows([{name: sample[name] for name in self.on}])
            if self.lookup.find([keys.columns[name] for name in self.on])[0] >= 0:
                yield sample
            return
        table, form = table_form(sample, "join")
        kept = np.flatnonzero(self.lookup.find([table.columns[name] for name in self.on]) >= 0)
        if len(kept):
            yield sample if len(kept) == table.length else deliver(table.take(kept), form)

    def describe(self) -> str:
        return f"match({', '.join(self.on)})"

    def identity(self) -> tuple[Any, ...]:
        return ("match", self.on)


def _is_frame(sample: dict[str, Any]) -> bool:
    from headrace.tables.frames import table_of

    return table_of(sample) is not None
