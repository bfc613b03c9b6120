"""Where: the rows for which a pyarrow expression is true.

Over a frame or files this op is not used: the verb hands the expression to the source, which then knows how many rows
there are. Here it stands behind ops that a filter cannot go before, and on frames.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Flat
from headrace.tables.ops.select import is_row, table_form


@dataclass(frozen=True, slots=True, eq=False)
class Where(Flat[Any, Any]):
    """Keep rows, and of frames the rows, for which the expression is true."""

    expression: Any
    verb = "filter"

    def spread(self, sample: object) -> Iterator[Any]:
        from headrace.tables.forms import deliver
        from headrace.tables.matching import matching
        from headrace.tables.rows import table_of_rows

        if is_row(sample):
            if len(matching(table_of_rows([sample]), self.expression)):
                yield sample
            return
        table, form = table_form(sample, "filter")
        kept = matching(table, self.expression)
        if len(kept):
            yield sample if len(kept) == table.length else deliver(table.take(kept), form)

    def describe(self) -> str:
        return f"filter({self.expression})"

    def identity(self) -> tuple[Any, ...]:
        return ("filter", str(self.expression))
