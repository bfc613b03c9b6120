"""Which rows of a table a pyarrow expression chooses."""

import re

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
        keep = answer.fill_null(False).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        shown = ", ".join(table.names[:20])
        raise BadOption(
            f"filter({expression}) does not fit the columns {shown}: {reason(error)}"
            + (f" (Arrow has no type for {', '.join(left_out)})" if left_out else "")
        ) from None
    if keep.dtype != np.bool_:
        raise BadOption(f"filter({expression}) is {answer.type}, not true or false for each row")
    return np.flatnonzero(keep)
