"""Which rows of a table a pyarrow expression chooses."""

import re
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.tables.column import ArrowColumn, Ints
from headrace.tables.convert.to_arrow import to_arrow
from headrace.tables.packages import ds, pa
from headrace.tables.table import Table


def reason(error: Exception) -> str:
    """What pyarrow says of an expression, without the whole schema behind it."""
    unknown = re.search(r"No match for FieldRef\.Name\((.*?)\) in", str(error))
    return str(error) if unknown is None else f"there is no column {unknown[1]!r}"


def check_expression(expression: object, schema: Any) -> None:
    """Refuse an expression that means nothing for columns of this schema, or that counts columns: which of the stored
    ones a number means would depend on how many are hidden, and on their order in the file."""
    if re.search(r"(?<!\.)FieldPath\(|Nested\(FieldRef\.FieldPath\(", re.sub(r'"(\\.|[^"\\])*"', "", str(expression))):
        raise BadOption(f"filter({expression}) means a column by its number: write its name, as in pc.field('name')")
    try:
        asked = ds.Scanner.from_batches(iter(()), schema=schema, columns={"keep": expression})
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        shown = ", ".join(schema.names[:20])
        raise BadOption(f"filter({expression}) does not fit the columns {shown}: {reason(error)}") from None
    _check_truth(expression, asked.projected_schema.types[0])


def _check_truth(expression: object, kind: Any) -> None:
    if not pa.types.is_boolean(kind):
        raise BadOption(f"filter({expression}) is {kind}, not true or false for each row")


def matching(table: Table, expression: object) -> Ints:
    """The rows for which the expression is true; where it cannot be told, because a value is missing, it is not."""
    arrays, left_out = {}, []
    for name, column in table.columns.items():
        try:
            arrays[name] = column.array if isinstance(column, ArrowColumn) else to_arrow(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            left_out.append(name)  # Arrow has no such type: nothing can be said of it, but of the others
    try:
        answer = ds.dataset(pa.table(arrays)).to_table(columns={"keep": expression}, use_threads=False).column(0)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        shown = ", ".join(table.names[:20])
        raise BadOption(
            f"filter({expression}) does not fit the columns {shown}: {reason(error)}"
            + (f" (Arrow has no type for {', '.join(left_out)})" if left_out else "")
        ) from None
    _check_truth(expression, answer.type)
    return np.flatnonzero(answer.fill_null(False).to_numpy())
