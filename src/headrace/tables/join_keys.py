"""Keys of joins: when two keys are the same. All joins use this, of rows or columns, left or inner.

A key is looked for as a value of the type that the frame's key has. Where it has no such value there is no match.

    missing        None, NaN, NaT, pandas' NA: never match anything, not even each other
    numbers        by their exact value: 1 is 1.0; -0.0 is 0.0; the float32 0.1 is not the float64 0.1
    truth values   only truth values
    instants       by the moment, in any unit: 1000 ns are 1 us. A date is its midnight. One with a time zone and one
                   without are not compared; numpy's datetime64 cannot tell and goes with either
    spans, times   by their length, in any unit
    text, bytes    by their characters, their bytes; a category is its value
    other objects  as Python compares them

Keys of different families (text against numbers) are an error, for no row could ever match.
"""

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption, BadPipe
from headrace.tables.column import Column, Ints, field_of
from headrace.tables.convert.from_arrow import as_numpy

NANOSECONDS = {"W": 604_800 * 10**9, "D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9}
NANOSECONDS |= {"ms": 10**6, "us": 10**3, "ns": 1}
TEXT: dict[type, str] = {str: "text", bytes: "bytes"}
ZONED, UNZONED = "instants with a time zone", "instants without a time zone"
DTYPES = {"b": "truth values", "i": "numbers", "u": "numbers", "f": "numbers", "M": "instants", "m": "spans of time"}
DTYPES |= {"U": "text", "S": "bytes", "c": "numbers"}


class KeyValues(NamedTuple):
    """Keys ready to be compared: one a row, of a numpy dtype or Python objects."""

    keys: NDArray[Any]
    missing: NDArray[np.bool_]
    family: str | None
    """What kind of thing they are; None if all are missing."""


class Keys:
    """The distinct keys of one column of a frame: each has a number, by which others are found."""

    def __init__(self, name: str, column: Column) -> None:
        self.name = name
        keys, missing, self.family = read(name, column)
        self._dtype = keys.dtype
        self._sorted: NDArray[Any] | None = None
        self._numbers: dict[Any, int] = {}
        self.codes = np.full(len(keys), -1, np.int64)
        """The number of the key of each row; -1 where it is missing."""
        if keys.dtype != object:
            self._sorted, self.codes[~missing] = np.unique(keys[~missing], return_inverse=True)
            self.count = len(self._sorted)
        else:
            self.codes[~missing] = self._number(keys[~missing].tolist())
            self.count = len(self._numbers)

    def _number(self, keys: list[Any]) -> list[int]:
        try:
            return [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        except TypeError as error:
            raise BadOption(f"column {self.name!r} cannot be a key: {error}; make text or numbers of it") from None

    def find(self, column: Column) -> Ints:
        """The number of each of these keys; -1 where it is missing or not among them."""
        keys, missing, family = read(self.name, column)
        self._check(family)
        if self._sorted is not None:
            return self._search(*expressed(keys, self._dtype, missing))
        found = np.full(len(keys), -1, np.int64)
        known = keys[~missing]
        try:
            found[~missing] = [
                self._numbers.get(key, -1) for key in (tagged(known) if known.dtype.kind in "mM" else known.tolist())
            ]
        except TypeError as error:
            raise BadPipe(f"column {self.name!r} cannot be a key: {error}; make text or numbers of it") from None
        return found

    def _search(self, keys: NDArray[Any], exact: NDArray[np.bool_]) -> Ints:
        assert self._sorted is not None
        if not self.count:
            return np.full(len(keys), -1, np.int64)
        place = np.minimum(np.searchsorted(self._sorted, keys), self.count - 1)
        return np.where((self._sorted[place] == keys) & exact, place, -1)

    def _check(self, family: str | None) -> None:
        ours = self.family
        if ours is None or family is None or ours == family or "objects" in (ours, family):
            return
        if {ours, family} in ({"instants", ZONED}, {"instants", UNZONED}):
            return
        raise BadPipe(
            f"join() by {self.name!r} compares {family} with the frame's {ours}: no key could match; cast one of them"
        )


def read(name: str, column: Column) -> KeyValues:
    """The keys of a column."""
    delivered = as_numpy(column)
    keys, missing = np.ma.getdata(delivered), np.ma.getmaskarray(delivered).copy()
    if keys.ndim != 1:
        raise BadPipe(f"column {name!r} has {keys.ndim} dimensions: a key is one value a row")
    if keys.dtype == object:
        return _objects(keys, missing)
    kind = keys.dtype.kind
    if kind in "fc":
        missing |= np.isnan(keys)
    elif kind in "mM":
        missing |= np.isnat(keys)
    family = DTYPES.get(kind, "objects")
    field = field_of(column)
    if kind == "M" and field is not None:
        zone = getattr(getattr(field.type, "value_type", field.type), "tz", False)
        family = family if zone is False else UNZONED if zone is None else ZONED
    return KeyValues(keys.astype(object) if kind not in "biufmM" else keys, missing, family)


def _objects(keys: NDArray[Any], missing: NDArray[np.bool_]) -> KeyValues:
    kinds = set(map(type, keys[~missing])) - {type(None)}
    if len(kinds) == 1 and kinds <= TEXT.keys():
        return KeyValues(keys, missing | np.array([key is None for key in keys], np.bool_), TEXT[kinds.pop()])
    missing |= np.array([_is_missing(key) for key in keys], np.bool_)
    families = {_family(key) for key in keys[~missing]}
    found = np.empty(len(keys), object)
    for row in np.flatnonzero(~missing):
        found[row] = _compared(keys[row])
    return KeyValues(found, missing, families.pop() if len(families) == 1 else "objects" if families else None)


def _is_missing(value: object) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA has no truth value; nor has an array, which is no key
        return type(value).__name__ == "NAType"


def _family(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "truth values"
    if isinstance(value, dt.datetime):
        return ZONED if value.tzinfo is not None else UNZONED
    if isinstance(value, dt.date | np.datetime64):
        return "instants"
    if isinstance(value, dt.timedelta | dt.time | np.timedelta64):
        return "spans of time"
    if isinstance(value, int | float | complex | Decimal | Fraction | np.number):
        return "numbers"
    return "text" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "objects"


def _compared(value: object) -> Any:
    """A value as it is compared: instants and spans as ("M" or "m", nanoseconds)."""
    if isinstance(value, dt.datetime):
        return ("M", _span(value - dt.datetime(1970, 1, 1, tzinfo=None if value.tzinfo is None else dt.UTC)))
    if isinstance(value, dt.date):
        return ("M", int(np.datetime64(value, "D").astype(np.int64)) * NANOSECONDS["D"])
    if isinstance(value, dt.timedelta):
        return ("m", _span(value))
    if isinstance(value, dt.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return ("m", seconds * 10**9 + value.microsecond * 1000)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return tagged(np.array([value]))[0]
    return value.item() if isinstance(value, np.generic) else value


def _span(value: Any) -> int:
    """Nanoseconds; what pandas gives has them beside its microseconds."""
    whole: int = (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1000
    return whole + getattr(value, "nanoseconds", 0)


def tagged(values: NDArray[Any]) -> list[tuple[str, int]]:
    """Instants or spans as exact numbers of nanoseconds, however far away."""
    unit, count = np.datetime_data(values.dtype)
    if unit not in NANOSECONDS:
        raise BadPipe(f"keys in {values.dtype} cannot be compared: cast them to one of {', '.join(NANOSECONDS)}")
    return [(values.dtype.kind, v * count * NANOSECONDS[unit]) for v in values.view(np.int64).tolist()]


def expressed(keys: NDArray[Any], dtype: "np.dtype[Any]", missing: NDArray[np.bool_]) -> tuple[Any, NDArray[np.bool_]]:
    """The keys in another dtype, and which of them it holds exactly."""
    if keys.dtype == dtype:
        return keys, ~missing
    if keys.dtype.kind in "biuf" and dtype.kind in "biuf":
        out, exact = _numbers_as(keys, dtype)
        return out, exact & ~missing
    out, exact = np.zeros(len(keys), dtype), np.zeros(len(keys), np.bool_)
    rows = np.flatnonzero(~missing)
    known = tagged(keys[rows]) if keys.dtype.kind in "mM" else keys[rows].tolist()
    for row, key in zip(rows, known, strict=True):
        value = _in_dtype(key, dtype)
        if value is not None:
            out[row], exact[row] = value, True
    return out, exact


def _in_dtype(key: object, dtype: "np.dtype[Any]") -> Any:
    """One key as a value of this dtype, or None if it has no such value."""
    if isinstance(key, tuple):
        ((_, step),) = tagged(np.ones(1, np.int64).view(dtype)) if dtype.kind == key[0] else ((None, 0),)
        exact = step and key[1] % step == 0 and -(1 << 63) < key[1] // step < 1 << 63
        return np.int64(key[1] // step).view(dtype) if exact else None
    try:
        with np.errstate(all="ignore"):
            value = dtype.type(key)
        return value if value.item() == key else None
    except (OverflowError, ValueError, TypeError):
        return None


def _numbers_as(keys: NDArray[Any], dtype: "np.dtype[Any]") -> tuple[Any, NDArray[np.bool_]]:
    with np.errstate(all="ignore"):
        out = keys.astype(dtype)
        exact = out.astype(keys.dtype) == keys
        if keys.dtype.kind in "iu" and dtype.kind in "iu":
            exact &= (keys < 0) == (out < 0)
        elif "f" in (keys.dtype.kind, dtype.kind) and keys.dtype.kind != dtype.kind:
            # The float after the largest integer comes back as itself where the processor saturates (ARM; on x86 this
            # changes nothing), though no integer is that large.
            whole, float_ = (dtype, keys) if keys.dtype.kind == "f" else (keys.dtype, out)
            exact &= (float_ < float(np.iinfo(whole).max) + 1) & (float_ >= float(np.iinfo(whole).min))
    return out, exact
