"""Rows as a table: what single samples (dicts, or tuples with names) become when they are put into columns.

Numbers become numpy arrays of their own dtype, with a mask where some are None; arrays of one shape are stacked;
everything else stays an object.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.errors import BadPipe
from headrace.tables.column import Column, Plain
from headrace.tables.table import Table

NUMBERS = (bool, int, float, complex, np.generic)


def table_of_rows(rows: Sequence[Any], names: Sequence[str] | None = None) -> Table:
    """Dicts with the same keys, or tuples and lists with one value for each of `names`."""
    if names is None:
        first = rows[0]
        if not isinstance(first, Mapping):
            raise BadPipe(
                f"a row must be a dict, not {type(first).__name__}; for tuples and lists give the names: "
                f"dataframe(size, columns=[...])"
            )
        names = tuple(first)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or row.keys() != first.keys():
                odd = set(row) ^ set(first) if isinstance(row, Mapping) else {type(row).__name__}
                raise BadPipe(
                    f"row {number} of the frame differs from the first in {', '.join(map(repr, sorted(map(str, odd))))}"
                )
        return Table({str(n): _column([row[n] for row in rows]) for n in names}, len(rows))
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise BadPipe(f"row {number} of the frame has {len(row)} values for {len(names)} columns")
    return Table({n: _column([row[i] for row in rows]) for i, n in enumerate(names)}, len(rows))


def _column(values: list[Any]) -> Column:
    present = [v for v in values if v is not None]
    if present and all(isinstance(v, NUMBERS) for v in present):
        if len(present) == len(values):
            return Plain(np.array(values))
        filler = present[0]
        mask = np.array([v is None for v in values])
        return Plain(np.array([filler if v is None else v for v in values]), mask)
    if all(isinstance(v, np.ndarray) for v in values) and len({(v.shape, v.dtype) for v in values}) == 1:
        return Plain(np.stack(values))
    objects = np.empty(len(values), object)
    for row, value in enumerate(values):
        objects[row] = value
    return Plain(objects)
