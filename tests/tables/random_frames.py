"""Random frames of pandas, polars and numpy: every dtype, missing values, slices, strides and masks."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

from tests.tables.random_tables import MOMENTS, ROWS, TEXT, columns

Values = st.SearchStrategy[Any]
NOT_PANDAS = ("view", "union", "run_end")
"""Arrow types that pandas wraps and cannot take rows of, or name."""

# --- pandas -----------------------------------------------------------------------------------------------------------


@st.composite
def pandas_frames(draw: st.DrawFn) -> Any:
    found = {f"c{i}": draw(PANDAS[draw(st.sampled_from([*PANDAS]))]) for i in range(draw(st.integers(1, 2)))}
    frame = pd.DataFrame({"row": np.arange(ROWS), **found}, index=range(100, 100 + ROWS))
    cut = draw(st.sampled_from(["whole", "slice", "stride"]))
    if cut == "slice":  # the same rows, cut out of a longer frame
        return pd.concat([frame.iloc[:2], frame, frame.iloc[-1:]]).iloc[2:-1]
    return frame.loc[frame.index.repeat(2)].iloc[::2] if cut == "stride" else frame


def _series(values: Values, dtype: Any) -> Values:
    rows = st.lists(values, min_size=ROWS, max_size=ROWS)
    return rows.map(lambda v: pd.Series(v, dtype=dtype, index=range(100, 100 + ROWS)))


def _objects() -> dict[str, Values]:
    none, stamps = st.none(), st.integers(0, 10**18).map(pd.Timestamp)
    return {
        "nanoseconds": stamps | none,
        "large ints": st.sampled_from([2**62 + 1, 1, -1]) | none,
        "ints over 64 bits": st.sampled_from([2**70, 1]),
        "zones": st.sampled_from([pd.Timestamp(5, tz="UTC"), pd.Timestamp(7, tz="Europe/Zurich"), pd.Timestamp(9)]),
        "text and bytes": st.sampled_from(["x", b"y", ""]),
        "text": TEXT | none,
        "text and NaN": TEXT | st.just(float("nan")) | none,
        "text of numpy": TEXT.map(np.str_) | TEXT,
        "half a pair": st.sampled_from(["\ud800", "a"]),
        "bytes": st.binary(max_size=3) | none,
        "dicts": st.sampled_from([{"a": 1}, {"b": 2}, {"a": None}, {}]),
        "like dicts": st.sampled_from([{"a": 1, "b": [1]}, {"a": 2, "b": []}]) | none,
        "dicts in dicts": st.sampled_from([{"a": {"b": 1}}, {"a": {"c": 1}}, {"a": {"b": 1.5}}]),
        "lists": st.lists(st.integers(0, 5), max_size=2),
        "lists of moments": st.lists(stamps | MOMENTS, max_size=2),
        "lists of much": st.lists(st.integers(0, 5) | st.floats() | st.booleans() | none, max_size=2),
        "tuples": st.tuples(st.integers(0, 5)),
        "truth": st.booleans() | none,
        "truth and ints": st.booleans() | st.integers(0, 3),
        "floats": st.floats() | none,
        "floats and ints": st.floats() | st.integers(0, 3),
        "NA": st.just(pd.NA) | st.integers(0, 3) | none,
        "NaT": st.just(pd.NaT) | MOMENTS | none,
        "decimals": st.decimals(-10, 10, places=2),
        "dates": st.dates() | none,
        "dates and moments": st.dates() | MOMENTS,
        "moments": MOMENTS | none,
        "moments with a zone": MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)) | none,
        "times": st.times() | none,
        "spans": st.timedeltas() | st.integers(0, 99).map(pd.Timedelta) | none,
        "arrays": st.lists(st.integers(0, 9), max_size=3).map(np.array),
        "uuids": st.uuids(),
        "numpy scalars": st.integers(-128, 127).map(np.int8) | none,
    }


def _masked() -> dict[str, Values]:
    na = st.just(pd.NA)
    whole = {f"{sign}Int{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}
    found = {
        name: _series(
            (st.integers(0, 2**bits - 1) if name[0] == "U" else st.integers(-(2 ** (bits - 1)), 9)) | na, name
        )
        for name, bits in whole.items()
    }
    found["boolean"] = _series(st.booleans() | na, "boolean")
    found |= {f"Float{w}": _series(st.floats(allow_nan=False, width=w) | na, f"Float{w}") for w in (32, 64)}
    found |= {name: _series(TEXT | na, name) for name in ("string[python]", "string[pyarrow]", "string")}
    return found | {"str": _series(TEXT | st.none(), "str")}


def _pandas() -> dict[str, Values]:
    stamps = st.integers(0, 10**18).map(pd.Timestamp)
    found = {f"object: {name}": _series(values, object) for name, values in _objects().items()}
    found |= {f"numpy {t}": raw(t).map(lambda v: pd.Series(v, index=range(100, 100 + ROWS))) for t in NUMBERS}
    found |= {f"numpy M8[{u}]": _series(stamps | st.just(pd.NaT), f"M8[{u}]") for u in ("s", "ms", "us", "ns")}
    found |= {
        f"numpy m8[{u}]": _series(st.integers(-9, 9).map(lambda n: pd.Timedelta(n, "s")) | st.just(pd.NaT), f"m8[{u}]")
        for u in ("s", "ms", "us", "ns")
    }
    found |= _masked()
    found["category"] = _series(st.sampled_from(["a", "b", None]), "category")
    found["category of floats"] = _series(st.sampled_from([0.5, 1.5, None]), "category")
    found["category of ints"] = _series(st.sampled_from([3, 1, None]), pd.CategoricalDtype([3, 2, 1], ordered=True))
    found["category of moments"] = _series(
        st.sampled_from([pd.Timestamp(5), None]), pd.CategoricalDtype([pd.Timestamp(5), pd.Timestamp(7)])
    )
    found["tz"] = _series(st.integers(0, 10**18).map(lambda n: pd.Timestamp(n, tz="UTC")), "datetime64[ns, Asia/Tokyo]")
    found["period"] = _series(st.integers(0, 999).map(lambda n: pd.Period(ordinal=n, freq="M")), "period[M]")
    found["interval"] = _series(st.integers(0, 9).map(lambda n: pd.Interval(n, n + 1)), "interval[int64, right]")
    found["sparse"] = _series(st.sampled_from([0, 1, 2]), pd.SparseDtype("int64", 0))
    found["sparse floats"] = _series(st.sampled_from([0.5, float("nan")]), pd.SparseDtype("float64"))
    arrow = columns().filter(_in_pandas).map(_arrow_series)
    return found | {f"ArrowDtype {i}": arrow for i in range(8)}  # so many: it stands for many


def _in_pandas(case: tuple[Any, Any]) -> bool:
    """Whether pandas can take rows of it; of categories in several pieces it cannot where an entry is null."""
    kind = case[0].type
    pieces = pa.types.is_dictionary(kind) and case[0].num_chunks > 1
    return not pieces and not any(word in str(kind) for word in NOT_PANDAS)


def _arrow_series(case: tuple[Any, Any]) -> Any:
    """A column of any Arrow type, chunks and all, as pandas holds it."""
    return pd.Series(pd.arrays.ArrowExtensionArray(case[0]), index=range(100, 100 + ROWS))


# --- polars -----------------------------------------------------------------------------------------------------------


def _polars() -> dict[Any, Values]:
    whole = {pl.Int8: 7, pl.Int16: 15, pl.Int32: 31, pl.Int64: 63}
    found: dict[Any, Values] = {t: st.integers(-(1 << bits), (1 << bits) - 1) for t, bits in whole.items()}
    positive = {pl.UInt8: 8, pl.UInt16: 16, pl.UInt32: 32, pl.UInt64: 64}
    found |= {t: st.integers(0, (1 << bits) - 1) for t, bits in positive.items()}
    found |= {pl.Datetime(u): MOMENTS for u in ("ms", "us", "ns")}
    found |= {pl.Duration(u): st.timedeltas(dt.timedelta(-100), dt.timedelta(100)) for u in ("ms", "us", "ns")}
    return found | {
        pl.Float32: st.floats(width=32),
        pl.Float64: st.floats(),
        pl.Boolean: st.booleans(),
        pl.String: TEXT,
        pl.Binary: st.binary(max_size=3),
        pl.Date: st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
        pl.Time: st.times(),
        pl.Datetime("us", "Europe/Zurich"): MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)),
        pl.Categorical: st.sampled_from(["u", "v"]),
        pl.Enum(["a", "b", "c"]): st.sampled_from(["a", "c"]),
        pl.Decimal(10, 2): st.decimals(-10, 10, places=2),
        pl.List(pl.Int32): st.lists(st.integers(0, 9) | st.none(), max_size=3),
        pl.List(pl.String): st.lists(TEXT, max_size=2),
        pl.List(pl.Categorical): st.lists(st.sampled_from(["u", "v"]), max_size=2),
        pl.List(pl.List(pl.Int8)): st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2),
        pl.List(pl.Struct({"x": pl.Int8})): st.lists(st.fixed_dictionaries({"x": st.integers(0, 9)}), max_size=2),
        pl.Array(pl.Float32, 2): st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2),
        pl.Array(pl.Int8, (2, 2)): st.just([[1, 2], [3, 4]]),
        pl.Array(pl.String, 2): st.lists(TEXT, min_size=2, max_size=2),
        pl.Struct({"x": pl.Int8, "y": pl.String}): st.fixed_dictionaries({"x": st.integers(0, 9), "y": TEXT}),
        pl.Null: st.none(),
        pl.Object: st.sampled_from([1, "a", (2,)]),
    }


@st.composite
def polars_frames(draw: st.DrawFn) -> Any:
    made = {}
    for i in range(draw(st.integers(1, 2))):
        dtype = draw(st.sampled_from([*POLARS]))
        values = POLARS[dtype] if draw(st.booleans()) else POLARS[dtype] | st.none()
        made[f"c{i}"] = pl.Series(draw(st.lists(values, min_size=ROWS, max_size=ROWS)), dtype=dtype, strict=False)
    frame = pl.DataFrame({"row": range(ROWS), **made})
    if any(dtype == pl.Object for dtype in frame.dtypes):
        return frame
    cut = draw(st.integers(0, ROWS))
    if draw(st.booleans()):
        frame = pl.concat([frame[:cut], frame[cut:]], rechunk=False)
    return pl.concat([frame[:2], frame, frame[-1:]])[2:-1] if draw(st.booleans()) else frame


# --- numpy ------------------------------------------------------------------------------------------------------------

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS += ("float16", "float32", "float64", "complex64", "complex128")
TIMES = tuple(f"{kind}8[{unit}]" for kind in "Mm" for unit in ("s", "ms", "us", "ns"))
TIMES += ("M8[D]", "M8[h]", "m8[D]", "M8[10us]", "m8[25s]", "M8[Y]")
ODD = (">i4", ">f8", "float128", "S3", "U3", "V2")
SPECIAL = [np.nan, -0.0, 0.0, np.inf, 1e300, 0.1]


def raw(dtype: str, shape: tuple[int, ...] = (ROWS,)) -> Values:
    """Any bits that the dtype can have: NaN with and without a sign, NaT, the largest and the smallest."""
    kind, size = np.dtype(dtype), int(np.prod(shape))
    if kind.kind in "bUV" or kind == np.longdouble:
        small = st.lists(st.integers(0, 120), min_size=size, max_size=size)
        return small.map(lambda v: np.array(v, np.int64).astype("S3" if kind.kind == "V" else kind).reshape(shape))
    octets = st.binary(min_size=size * kind.itemsize, max_size=size * kind.itemsize)
    found = octets.map(lambda b: np.frombuffer(b, kind).reshape(shape).copy())
    if kind.kind != "f":
        return found
    with np.errstate(over="ignore"):
        special = np.array(SPECIAL).astype(kind)
    chosen = st.lists(st.integers(0, len(SPECIAL) - 1), min_size=size, max_size=size)
    return found | chosen.map(lambda places: special[np.array(places, int)].reshape(shape))


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
    masks = draw(st.booleans())
    for i in range(draw(st.integers(1, 2))):
        shape = (ROWS, *draw(st.sampled_from([(), (), (2,), (3, 2), (0,), (1, 2, 2)])))
        dtype = draw(st.sampled_from(NUMBERS) | st.sampled_from(TIMES) | st.sampled_from(ODD))
        values = laid(draw(raw(dtype, shape)), draw(st.sampled_from(["", "stride", "backwards", "fortran", "frozen"])))
        if masks and values.dtype.isnative and draw(st.booleans()):  # numpy pickles others in this machine's order
            hidden = draw(st.lists(st.booleans(), min_size=values.size, max_size=values.size))
            values = np.ma.MaskedArray(values, np.array(hidden, bool).reshape(shape))
        made[f"c{i}"] = values
    if not masks and draw(st.booleans()):
        return structured(made)
    return made


def structured(columns: dict[str, Any]) -> Any:
    whole = np.empty(ROWS, [(name, v.dtype, v.shape[1:]) for name, v in columns.items()])
    for name, values in columns.items():
        whole[name] = values
    return whole


PANDAS = _pandas()
POLARS = _polars()
