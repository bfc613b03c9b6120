"""Random frames of pandas, polars and numpy: every dtype, missing values, slices, strides and masks."""

import datetime as dt
import uuid
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

from tests.tables.random_tables import ROWS, TYPES, column_of
from tests.tables.random_values import (
    BITS,
    DATES,
    MOMENTS,
    NONE,
    TEXT,
    TIMES,
    Seeds,
    Value,
    among,
    changed,
    decimals,
    either,
    floating,
    many,
    octets,
    whole,
)

NOT_PANDAS = ("view", "union", "run_end")
"""Arrow types that pandas wraps and cannot take rows of, or name."""
INDEX = range(100, 100 + ROWS)
ZONED = changed(MOMENTS, lambda t: t.replace(tzinfo=dt.UTC))
STAMPS = changed(whole(0, 10**18), pd.Timestamp)
DIGITS = whole(0, 9)

# --- pandas -----------------------------------------------------------------------------------------------------------


@st.composite
def pandas_frames(draw: st.DrawFn) -> Any:
    names, values = draw(st.lists(st.sampled_from([*PANDAS, *ARROW]), min_size=1, max_size=2)), draw(Seeds)
    found = {
        f"c{i}": _arrow_series(draw(IN_PANDAS), values) if name in ARROW else PANDAS[name](values)
        for i, name in enumerate(names)
    }
    frame = pd.DataFrame({"row": np.arange(ROWS), **found}, index=INDEX)
    cut = values.choice(["whole", "slice", "stride"])
    if cut == "slice":  # the same rows, cut out of a longer frame
        return pd.concat([frame.iloc[:2], frame, frame.iloc[-1:]]).iloc[2:-1]
    return frame.loc[frame.index.repeat(2)].iloc[::2] if cut == "stride" else frame


def _series(value: Value, dtype: Any) -> Value:
    return lambda draw: pd.Series([value(draw) for _ in range(ROWS)], dtype=dtype, index=INDEX)


def _objects() -> dict[str, Value]:
    return {
        "nanoseconds": either(STAMPS, NONE),
        "large ints": among(2**62 + 1, 1, -1, None),
        "ints about 64 bits": among(2**63, 2**63 - 1, -(2**63), 1),
        "ints over 64 bits": among(2**70, 1),
        "large ints in lists": many(among(2**63, 2**70, 1), 0, 2),
        "zones": among(pd.Timestamp(5, tz="UTC"), pd.Timestamp(7, tz="Europe/Zurich"), pd.Timestamp(9)),
        "text and bytes": among("x", b"y", ""),
        "text": either(TEXT, NONE),
        "text and NaN": either(TEXT, among(float("nan"), None)),
        "text of numpy": either(changed(TEXT, np.str_), TEXT),
        "half a pair": among("\ud800", "a"),
        "bytes": either(octets(0, 3), NONE),
        "dicts": lambda draw: draw.choice([{"a": 1}, {"b": 2}, {"a": None}, {}]).copy(),
        "like dicts": lambda draw: draw.choice([{"a": 1, "b": [1]}, {"a": 2, "b": []}, None]),
        "dicts in dicts": lambda draw: draw.choice([{"a": {"b": 1}}, {"a": {"c": 1}}, {"a": {"b": 1.5}}]),
        "lists": many(DIGITS, 0, 2),
        "lists of moments": many(either(STAMPS, MOMENTS), 0, 2),
        "lists of much": many(either(DIGITS, floating(64), BITS, NONE), 0, 2),
        "tuples": changed(DIGITS, lambda n: (n,)),
        "truth": either(BITS, NONE),
        "truth and ints": either(BITS, DIGITS),
        "floats": either(floating(64), NONE),
        "floats and ints": either(floating(64), DIGITS),
        "NA": either(among(pd.NA, None), DIGITS),
        "NaT": either(among(pd.NaT, None), MOMENTS),
        "decimals": decimals(-1000, 1000),
        "dates": either(DATES, NONE),
        "dates and moments": either(DATES, MOMENTS),
        "moments": either(MOMENTS, NONE),
        "moments with a zone": either(ZONED, NONE),
        "times": either(TIMES, NONE),
        "spans": either(
            changed(whole(-(10**15), 10**15), lambda n: dt.timedelta(microseconds=n)), changed(DIGITS, pd.Timedelta)
        ),
        "arrays": changed(many(DIGITS, 0, 3), np.array),
        "uuids": lambda draw: uuid.UUID(bytes=draw.randbytes(16)),
        "numpy scalars": either(changed(whole(-128, 127), np.int8), NONE),
    }


def _masked() -> dict[str, Value]:
    na = among(pd.NA)
    bits = {f"Int{n}": n for n in (8, 16, 32, 64)}
    found = {name: _series(either(whole(-(2 ** (n - 1)), 2 ** (n - 1) - 1), na), name) for name, n in bits.items()}
    found |= {f"U{name}": _series(either(whole(0, 2**n - 1), na), f"U{name}") for name, n in bits.items()}
    found["boolean"] = _series(either(BITS, na), "boolean")
    found |= {f"Float{w}": _series(either(floating(w, nan=False), na), f"Float{w}") for w in (32, 64)}
    found |= {name: _series(either(TEXT, na), name) for name in ("string[python]", "string[pyarrow]", "string")}
    return found | {"str": _series(either(TEXT, NONE), "str")}


def _pandas() -> dict[str, Value]:
    units = ("s", "ms", "us", "ns")
    spans = changed(whole(-9, 9), lambda n: pd.Timedelta(n, "s"))
    found = {f"object: {name}": _series(values, object) for name, values in _objects().items()}
    found |= {f"numpy {t}": lambda draw, t=t: pd.Series(raw(t, draw), index=INDEX) for t in NUMBERS}
    found |= {f"numpy M8[{u}]": _series(either(STAMPS, among(pd.NaT)), f"M8[{u}]") for u in units}
    found |= {f"numpy m8[{u}]": _series(either(spans, among(pd.NaT)), f"m8[{u}]") for u in units}
    found |= _masked()
    found["category"] = _series(among("a", "b", None), "category")
    found["category of floats"] = _series(among(0.5, 1.5, None), "category")
    found["category of ints"] = _series(among(3, 1, None), pd.CategoricalDtype([3, 2, 1], ordered=True))
    found["category of moments"] = _series(
        among(pd.Timestamp(5), None), pd.CategoricalDtype([pd.Timestamp(5), pd.Timestamp(7)])
    )
    found["tz"] = _series(changed(STAMPS, lambda t: t.tz_localize("UTC")), "datetime64[ns, Asia/Tokyo]")
    found["period"] = _series(changed(whole(0, 999), lambda n: pd.Period(ordinal=n, freq="M")), "period[M]")
    found["interval"] = _series(changed(DIGITS, lambda n: pd.Interval(n, n + 1)), "interval[int64, right]")
    found["sparse"] = _series(among(0, 1, 2), pd.SparseDtype("int64", 0))
    found["sparse floats"] = _series(among(0.5, float("nan")), pd.SparseDtype("float64"))
    return found


ARROW = [f"ArrowDtype {i}" for i in range(8)]
"""So many: it stands for many."""
IN_PANDAS = TYPES.filter(lambda kind: not any(word in str(kind) for word in NOT_PANDAS))


def _arrow_series(kind: Any, draw: Random) -> Any:
    """A column of any Arrow type as pandas holds it: in chunks too, but it cannot take from chunks of categories."""
    column, _ = column_of(kind, draw, pieces=not pa.types.is_dictionary(kind))
    return pd.Series(pd.arrays.ArrowExtensionArray(column), index=INDEX)


# --- polars -----------------------------------------------------------------------------------------------------------


def _polars() -> dict[Any, Value]:
    bits = {pl.Int8: 7, pl.Int16: 15, pl.Int32: 31, pl.Int64: 63}
    found: dict[Any, Value] = {t: whole(-(1 << n), (1 << n) - 1) for t, n in bits.items()}
    positive = {pl.UInt8: 8, pl.UInt16: 16, pl.UInt32: 32, pl.UInt64: 64}
    found |= {t: whole(0, (1 << n) - 1) for t, n in positive.items()}
    found |= {pl.Datetime(u): MOMENTS for u in ("ms", "us", "ns")}
    spans = changed(whole(-(10**12), 10**12), lambda n: dt.timedelta(microseconds=n))
    found |= {pl.Duration(u): spans for u in ("ms", "us", "ns")}
    return found | {
        pl.Float32: floating(32),
        pl.Float64: floating(64),
        pl.Boolean: BITS,
        pl.String: TEXT,
        pl.Binary: octets(0, 3),
        pl.Date: DATES,
        pl.Time: TIMES,
        pl.Datetime("us", "Europe/Zurich"): ZONED,
        pl.Categorical: among("u", "v"),
        pl.Enum(["a", "b", "c"]): among("a", "c"),
        pl.Decimal(10, 2): decimals(-1000, 1000),
        pl.List(pl.Int32): many(either(DIGITS, NONE), 0, 3),
        pl.List(pl.String): many(TEXT, 0, 2),
        pl.List(pl.Categorical): many(among("u", "v"), 0, 2),
        pl.List(pl.List(pl.Int8)): many(many(DIGITS, 0, 2), 0, 2),
        pl.List(pl.Struct({"x": pl.Int8})): many(changed(DIGITS, lambda n: {"x": n}), 0, 2),
        pl.Array(pl.Float32, 2): many(floating(32, nan=False), 2, 2),
        pl.Array(pl.Int8, (2, 2)): many(many(DIGITS, 2, 2), 2, 2),
        pl.Array(pl.String, 2): many(TEXT, 2, 2),
        pl.Struct({"x": pl.Int8, "y": pl.String}): lambda draw: {"x": DIGITS(draw), "y": TEXT(draw)},
        pl.Null: NONE,
        pl.Object: among(1, "a", (2,)),
    }


@st.composite
def polars_frames(draw: st.DrawFn) -> Any:
    made, values = {}, draw(Seeds)
    for i, dtype in enumerate(draw(st.lists(st.sampled_from([*POLARS]), min_size=1, max_size=2))):
        value = POLARS[dtype] if values.random() < 0.5 else either(POLARS[dtype], NONE)
        made[f"c{i}"] = pl.Series([value(values) for _ in range(ROWS)], dtype=dtype, strict=False)
    frame = pl.DataFrame({"row": range(ROWS), **made})
    if any(dtype == pl.Object for dtype in frame.dtypes):
        return frame
    cut = values.randint(0, ROWS)
    if values.random() < 0.5:
        frame = pl.concat([frame[:cut], frame[cut:]], rechunk=False)
    return pl.concat([frame[:2], frame, frame[-1:]])[2:-1] if values.random() < 0.5 else frame


# --- numpy ------------------------------------------------------------------------------------------------------------

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS += ("float16", "float32", "float64", "complex64", "complex128")
INSTANTS = tuple(f"{kind}8[{unit}]" for kind in "Mm" for unit in ("s", "ms", "us", "ns"))
INSTANTS += ("M8[D]", "M8[h]", "m8[D]", "M8[10us]", "m8[25s]", "M8[Y]")
ODD = (">i4", ">f8", "float128", "S3", "U3", "V2")
SPECIAL = [np.nan, -0.0, 0.0, np.inf, 1e300, 0.1]


def raw(dtype: str, draw: Random, shape: tuple[int, ...] = (ROWS,)) -> Any:
    """Any bits that the dtype can have: NaN with and without a sign, NaT, the largest and the smallest."""
    kind, size = np.dtype(dtype), int(np.prod(shape))
    if kind.kind in "bUV" or kind == np.longdouble:
        small = np.array([draw.randint(0, 120) for _ in range(size)], np.int64)
        return small.astype("S3" if kind.kind == "V" else kind).reshape(shape)
    if kind.kind == "f" and draw.random() < 0.5:
        with np.errstate(over="ignore"):
            return np.array(draw.choices(SPECIAL, k=size)).astype(kind).reshape(shape)
    found = np.frombuffer(draw.randbytes(size * kind.itemsize), kind).reshape(shape).copy()
    if kind.kind in "mM" and size and draw.random() < 0.5:
        found.view(np.int64).flat[draw.randrange(size)] = np.iinfo(np.int64).min
    return found


def laid(values: Any, how: str) -> Any:
    """The same values, otherwise in memory."""
    if how == "stride":
        return np.repeat(values, 2, axis=0)[::2]
    if how == "backwards":
        return np.ascontiguousarray(values[::-1])[::-1]
    if how == "fortran":
        return np.asfortranarray(values)
    if how == "frozen":
        values = values.copy()
        values.flags.writeable = False
    return values


@st.composite
def numpy_frames(draw: st.DrawFn) -> Any:
    """Arrays of one to three dimensions of many dtypes; some with masks, for rows or for elements."""
    made: dict[str, Any] = {"row": np.arange(ROWS)}
    dtypes, values = draw(st.lists(st.sampled_from([*NUMBERS, *INSTANTS, *ODD]), min_size=1, max_size=2)), draw(Seeds)
    masks = values.random() < 0.5
    for i, dtype in enumerate(dtypes):
        shape = (ROWS, *draw(st.sampled_from([(), (), (2,), (3, 2), (0,), (1, 2, 2)])))
        column = laid(raw(dtype, values, shape), values.choice(["", "stride", "backwards", "fortran", "frozen"]))
        if masks and column.dtype.isnative and values.random() < 0.5:  # numpy pickles others in this machine's order
            hidden = np.array([values.random() < 0.5 for _ in range(column.size)], bool)
            column = np.ma.MaskedArray(column, hidden.reshape(shape))
        made[f"c{i}"] = column
    if not masks and values.random() < 0.5:
        return structured(made)
    return made


def structured(columns: dict[str, Any]) -> Any:
    whole = np.empty(ROWS, [(name, v.dtype, v.shape[1:]) for name, v in columns.items()])
    for name, values in columns.items():
        whole[name] = values
    return whole


PANDAS = _pandas()
POLARS = _polars()
