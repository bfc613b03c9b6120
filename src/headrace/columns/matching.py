"""Which rows of a table a pyarrow expression chooses."""

from typing import Any

import numpy as np

from headrace.columns.column import Ints
from headrace.columns.forms import deliver
from headrace.columns.packages import package
from headrace.columns.table import Table
from headrace.errors import BadOption


def matching(table: Table, expression: Any) -> Ints:
    """The rows for which a pyarrow expression is true."""
    pa, dataset = package("pyarrow"), package("pyarrow.dataset")
    whole = deliver(table, "arrow")
    number = "headrace row number"
    numbered = whole.append_column(number, pa.array(np.arange(table.length)))
    try:
        kept = dataset.dataset(numbered).to_table(columns=[number], filter=expression, use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadOption(f"filter({expression}) does not fit the columns {', '.join(table.names[:20])}: {error}") from None
    found: Ints = kept.column(0).combine_chunks().to_numpy()
    return found
