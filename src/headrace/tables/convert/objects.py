"""Objects: what a column of Python objects is in Arrow, decided by all of its values and not by those of a batch.

Objects stay what they are in rows and in the forms numpy and pandas. Arrow and polars need one type for all rows. There
is one where every value is exactly of one type of this list, or None (missing):

    str, bytes, bool, int (64 bits), float, date, time, timedelta, datetime without a time zone
    Decimal, lists and dicts of the same, where Arrow gives back exactly what it was given

Everything else (numpy scalars, pandas Timestamps, tuples, ["x", b"y"], dicts of unlike keys, NaN among text) would be
changed without a word, so Arrow and polars refuse it.
"""

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import MissingExtra
from headrace.tables.packages import pa

TYPES: dict[type, str] = {
    str: "string",
    bytes: "binary",
    bool: "bool",
    int: "int64",
    float: "double",
    dt.date: "date32",
    dt.time: "time64[us]",
    dt.timedelta: "duration[us]",
    dt.datetime: "timestamp[us]",
}
NESTED = (list, dict, Decimal)
UNTYPED = ""
"""The field of a column of objects for which there is no such Arrow type."""


def arrow_field(values: NDArray[Any]) -> Any:
    """The name of the Arrow type of these objects, a field, or UNTYPED."""
    kinds = set(map(type, values.flat)) - {type(None)}
    if values.ndim != 1 or len(kinds) != 1:
        return UNTYPED if kinds or values.ndim != 1 else "null"
    (kind,) = kinds
    if kind in TYPES:
        return TYPES[kind] if _fits(kind, values) else UNTYPED
    if kind not in NESTED:
        return UNTYPED
    try:
        return pa.field("", exactly(values.tolist()).type)
    except (MissingExtra, ValueError, TypeError, NotImplementedError, OverflowError):  # (of ints in lists or dicts)
        return UNTYPED


def _fits(kind: type, values: NDArray[Any]) -> bool:
    if kind is int:
        return all(v is None or -(1 << 63) <= v < 1 << 63 for v in values)
    if kind in (dt.datetime, dt.time):
        return all(v is None or v.tzinfo is None for v in values)
    return kind is not str or all(v is None or v.isascii() or _is_unicode(v) for v in values)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def exactly(values: Sequence[Any]) -> Any:
    """An Arrow array that gives back exactly these objects; ValueError if there is none."""
    array = pa.array(values)
    for row, (given, got) in enumerate(zip(values, array.to_pylist(), strict=True)):
        if not same(given, got):
            raise ValueError(f"row {row} is {given!r}, and would become {got!r}")
    return array


def same(one: Any, two: Any) -> bool:
    """Equal and of one type, all the way down; NaN is NaN."""
    if isinstance(one, np.ndarray):
        return isinstance(two, list) and one.ndim == 1 and one.dtype.kind in "biuf" and same(one.tolist(), two)
    if type(one) is not type(two):
        return False
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, float):
        return (one == two and math.copysign(1, one) == math.copysign(1, two)) or (one != one and two != two)
    return bool(one == two)
