"""Batched map: a function of the user's on columns, many rows at a time.

The function gets the columns of some rows and returns as many rows. It is called with batches, windows and single rows,
so what it computes for a row must not depend on the rows beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Each, Here, Indexed, Positions, Take, as_input
from headrace.tables.convert.forms import check_form, deliver
from headrace.tables.convert.frames import is_array, table_of
from headrace.tables.convert.rows import table_of_rows
from headrace.tables.ops.select import row_by_row, with_take
from headrace.tables.table import Table


def _shown(result: object) -> str:
    """What a function has returned, for an error: of a dict, the first entry that is no column."""
    if not isinstance(result, dict) or not result:
        return f"an empty {type(result).__name__}" if result == {} else type(result).__name__
    for name, value in result.items():
        if not isinstance(name, str):
            return f"a dict with the key {name!r}: names of columns are text"
        if not is_array(value):
            return f"a dict in which column {name!r} is a {type(value).__name__}: make an array of one value a row"
    return type(result).__name__


@dataclass(frozen=True, slots=True)
class MapRows(Each[Any, Any]):
    """Apply `fn` to the columns of many rows, given in the form `as_`."""

    fn: Callable[[Any], Any]
    as_: str = "numpy"
    user = True
    verb = "map"
    columnar = as_input

    def __post_init__(self) -> None:
        check_form(self.as_, "map")

    def apply(self, sample: dict[str, Any]) -> dict[str, Any]:
        return self._mapped(table_of_rows([sample])).row(0)

    def _mapped(self, table: Table) -> Table:
        result = self.fn(deliver(table, self.as_))
        made = table_of(result)
        if made is None:
            raise BadPipe(
                f"the function of map(batched=True) must return columns (a dict of arrays, a frame or a table), "
                f"not {_shown(result)}"
            )
        if made.length != table.length:
            raise BadPipe(
                f"the function of map(batched=True) got {table.length} rows and returned {made.length}: it must return "
                f"one row for each; use filter() or flatmap() to change their number"
            )
        return made

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        spot = here.spot

        def taken(below: Take, positions: Positions, names: tuple[str, ...] | None) -> Table:
            table = below(positions, None)
            spot.here = here
            spot.position = int(positions[0])
            mapped = self._mapped(table)
            return mapped if names is None else mapped.select(names)

        return row_by_row(with_take(self, inputs, here, taken))
