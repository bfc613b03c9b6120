"""Where: the rows for which a pyarrow expression is true.

Over a frame or files this op is not used: the verb hands the expression to the source, which then knows how many rows
there are. Here it stands behind ops that a filter cannot go before, and on frames.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Flat
from headrace.tables.matching import matching
from headrace.tables.ops.select import spread_kept


@dataclass(frozen=True, slots=True, eq=False)
class Where(Flat[Any, Any]):
    """Keep rows, and of frames the rows, for which the expression is true."""

    expression: Any
    verb = "filter"

    def spread(self, sample: object) -> Iterator[Any]:
        return spread_kept(sample, "filter", lambda table: matching(table, self.expression))

    def describe(self) -> str:
        return f"filter({self.expression})"

    def identity(self) -> tuple[Any, ...]:
        return ("filter", str(self.expression))
