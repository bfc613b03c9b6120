"""The digest of a small table: two tables with the same values have the same one, in every process and release."""

from hashlib import blake2b

import numpy as np

from headrace.tables.column import ArrowColumn, Column
from headrace.tables.table import Table

BYTES = 64 << 20
"""Up to so many bytes of numbers, and"""
CELLS = 1 << 18
"""up to so many values of other kinds a table is looked at: about 0.1 s, once."""
PLAIN = (str, bytes, int, float, bool, type(None))
"""Kinds of objects whose text is the same everywhere."""


def digest(table: Table) -> str | None:
    """Of all values in order; None where there are too many of them, or where some have no text of their own."""
    found = blake2b(digest_size=8)
    for name, column in table.columns.items():
        content = _bytes_of(column)
        if content is None:
            return None
        found.update(repr(name).encode())
        found.update(content)
    return found.hexdigest()


def _bytes_of(column: Column) -> bytes | None:
    if isinstance(column, ArrowColumn):
        return None if len(column) > CELLS else repr(column.array.to_pylist()).encode("utf-8", "surrogatepass")
    if not column.values.dtype.hasobject:
        if column.values.nbytes > BYTES:
            return None
        values = (
            column.values
            if column.mask is None
            else np.where(column.mask, np.zeros((), column.values.dtype), column.values)
        )
        return values.tobytes() + (b"" if column.mask is None else column.mask.tobytes())
    objects = column.values.reshape(-1).tolist()
    if len(objects) > CELLS or not all(isinstance(one, PLAIN) for one in objects):
        return None
    return repr(objects).encode("utf-8", "surrogatepass")
