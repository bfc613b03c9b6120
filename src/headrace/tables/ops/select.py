"""Select, rename, filter by an expression: some columns or rows, of rows, dicts of arrays, frames and tables.

Right over a frame or files none of these ops runs: the verbs hand the names and the expression down to the source,
which then knows how many rows there are (see `pipe/verbs/frames.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from headrace.errors import BadPipe
from headrace.op import Each, Flat, Here, Indexed, Positions, Take, as_input
from headrace.tables.convert.forms import deliver, form_of
from headrace.tables.convert.frames import table_of
from headrace.tables.convert.rows import table_of_rows
from headrace.tables.matching import matching
from headrace.tables.table import check_names, renamed


def table_form(sample: object, verb: str) -> tuple[Any, str]:
    """A frame as a table, and the form it was in."""
    form, table = form_of(sample), table_of(sample)
    if form is None or table is None:
        raise BadPipe(f"{verb}() works on rows (dicts) and on frames, not on {type(sample).__name__}")
    return table, form


def is_row(sample: object) -> TypeGuard[dict[str, Any]]:
    """Whether a sample is one row, and not a dict of columns."""
    return isinstance(sample, dict) and table_of(sample) is None


def with_take(op: Each[Any, Any], inputs: tuple[Indexed, ...], here: Here, taken: Callable[..., Any]) -> Indexed:
    """Random access to the op's rows: `taken(take, positions, names)` makes them of what `take` gives below."""
    found, below = Each.index(op, inputs, here), inputs[0].take
    assert found is not None
    if below is not None:
        found.take = partial(taken, below)
    return found


def row_by_row(found: Indexed) -> Indexed:
    """The same, but a single row is made as a table of one row: it has the types that it has in batches."""
    if (take := found.take) is not None:
        found.get = lambda position: take(np.array([position]), None).row(0)
    return found


@dataclass(frozen=True, slots=True)
class Select(Each[Any, Any]):
    """Only these columns, in this order."""

    names: tuple[str, ...]
    columnar = as_input

    def apply(self, sample: object) -> Any:
        if isinstance(sample, dict):
            if any(name not in sample for name in self.names):
                check_names(self.names, sample)
            return {name: sample[name] for name in self.names}
        table, form = table_form(sample, "select")
        return deliver(table.select(self.names), form)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        def taken(below: Take, positions: Positions, names: tuple[str, ...] | None) -> Any:
            table = below(positions, self.names)
            return table if names is None else table.select(names)

        return with_take(self, inputs, here, taken)


@dataclass(frozen=True, slots=True)
class Rename(Each[Any, Any]):
    """Columns under new names; `new` holds pairs (old, new)."""

    new: tuple[tuple[str, str], ...]
    columnar = as_input

    def apply(self, sample: object) -> Any:
        if isinstance(sample, dict):
            return dict(zip(renamed(sample, dict(self.new)), sample.values(), strict=True))
        table, form = table_form(sample, "rename")
        return deliver(table.rename(dict(self.new)), form)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        def taken(below: Take, positions: Positions, names: tuple[str, ...] | None) -> Any:
            table = below(positions, None).rename(dict(self.new))
            return table if names is None else table.select(names)

        return with_take(self, inputs, here, taken)


@dataclass(frozen=True, slots=True, eq=False)
class Where(Flat[Any, Any]):
    """Keep rows, and of frames the rows, for which a pyarrow expression is true."""

    expression: Any
    chooses = True
    verb = "filter"

    def spread(self, sample: object) -> Iterator[Any]:
        if is_row(sample):
            if len(matching(table_of_rows([sample]), self.expression)):
                yield sample
            return
        table, form = table_form(sample, "filter")
        rows = matching(table, self.expression)
        if len(rows):
            yield sample if len(rows) == table.length else deliver(table.take(rows), form)

    def describe(self) -> str:
        return f"filter({self.expression})"

    def identity(self) -> tuple[Any, ...]:
        return ("filter", str(self.expression))
