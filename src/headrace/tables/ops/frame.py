"""Rows to frames and back: `dataframe` puts lists of rows into columns, `rows` takes frames apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Each, Flat
from headrace.tables.convert.forms import check_form, deliver
from headrace.tables.convert.rows import table_of_rows
from headrace.tables.ops.select import table_form


@dataclass(frozen=True, slots=True)
class ToFrame(Each[list[Any], Any]):
    """A list of rows as one frame of the form `as_`."""

    as_: str = "pandas"
    columns_: tuple[str, ...] | None = None
    verb = "frame"

    def __post_init__(self) -> None:
        check_form(self.as_, "dataframe")

    def apply(self, sample: list[Any]) -> Any:
        return deliver(table_of_rows(sample, self.columns_), self.as_)

    def identity(self) -> tuple[Any, ...]:
        return ("frame",)


@dataclass(frozen=True, slots=True)
class FrameRows(Flat[Any, dict[str, Any]]):
    """The rows of frames, tables and dicts of arrays, as dicts."""

    verb = "rows"

    def spread(self, sample: object) -> Iterator[dict[str, Any]]:
        table, _ = table_form(sample, "rows")
        for row in range(table.length):
            yield table.row(row)
