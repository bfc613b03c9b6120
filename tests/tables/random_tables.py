"""Random columns of every Arrow type, with missing values, slices, chunks and offsets, and the values they must give.

The values are made first, as plain Python; the Arrow array is then made of them in a roundabout way (with rows before
and after that are cut off again, in several chunks), so that whatever offset is forgotten shows.
"""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

ROWS = 6
INTS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
UNSIGNED = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    **{kind: st.integers(-(1 << bits), (1 << bits) - 1) for kind, bits in INTS.items()},
    **{kind: st.integers(0, (1 << bits) - 1) for kind, bits in UNSIGNED.items()},
    pa.float16(): st.floats(width=16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.timestamp("s"): MOMENTS.map(lambda t: t.replace(microsecond=0)),
    pa.timestamp("ms"): MOMENTS.map(lambda t: t.replace(microsecond=0)),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "Europe/Zurich"): MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)),
    pa.timestamp("ns"): st.integers(-(10**18), 10**18),
    pa.date32(): st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
    pa.date64(): st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
    pa.time32("s"): st.integers(0, 86_399),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.integers(0, 86_399_999_999).map(lambda us: us * 1000),
    pa.duration("s"): st.integers(-(10**9), 10**9),
    pa.duration("ms"): st.integers(-(10**12), 10**12),
    pa.duration("us"): st.integers(-(10**15), 10**15),
    pa.duration("ns"): st.integers(-(10**18), 10**18),
    pa.month_day_nano_interval(): st.tuples(*[st.integers(-99, 99)] * 3).map(lambda t: pa.MonthDayNano(t)),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), TEXT),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), st.binary(max_size=4)),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    **{t: st.integers(-999, 999).map(lambda n: decimal.Decimal(n).scaleb(-2)) for t in (pa.decimal32(5, 2),)},
    **{t: st.integers(-(10**6), 10**6).map(lambda n: decimal.Decimal(n).scaleb(-2)) for t in (pa.decimal64(9, 2),)},
    pa.decimal128(20, 2): st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n).scaleb(-2)),
    pa.decimal256(50, 2): st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n).scaleb(-2)),
}
PLAIN = [pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.timestamp("us"), pa.date32()]
PLAIN += [pa.time32("s"), pa.duration("ns")]


def values_of(kind: Any, holes: bool = True) -> st.SearchStrategy[Any]:
    """Values that pa.array(..., kind) takes; with `holes`, of some types they may have None inside."""
    types = pa.types

    def inside(part: Any) -> st.SearchStrategy[Any]:
        values = values_of(part, holes)
        return values | values | values | st.none() if holes else values

    if kind in SCALARS:
        return SCALARS[kind]
    if types.is_null(kind):
        return st.none()
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_values(kind)
    if types.is_fixed_size_list(kind):
        return st.lists(inside(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return values_of(kind.value_type)
    if types.is_map(kind):
        pairs = st.dictionaries(values_of(kind.key_type), values_of(kind.item_type), max_size=2)
        return pairs.map(lambda found: list(found.items()))
    if types.is_struct(kind):
        return st.fixed_dictionaries({field.name: inside(field.type) for field in kind})
    return st.lists(inside(kind.value_type), max_size=3)


def _extension_values(kind: Any) -> st.SearchStrategy[Any]:
    if kind.extension_name == "arrow.uuid":
        return st.uuids().map(lambda u: u.bytes)
    if kind.extension_name == "arrow.bool8":
        return st.integers(0, 1)
    if kind.extension_name == "arrow.json":
        return st.sampled_from(['{"a": 1}', "[]", "3", "null"])
    if kind.extension_name == "arrow.fixed_shape_tensor":
        inner = values_of(kind.value_type)
        return st.lists(inner, min_size=kind.storage_type.list_size, max_size=kind.storage_type.list_size)
    return values_of(kind.storage_type)


LEAVES = st.sampled_from([*SCALARS])
NESTED: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([pa.int32(), pa.float64(), pa.string(), pa.timestamp("us"), pa.bool_()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.builds(pa.list_, inner, st.integers(0, 3)),
        inner.map(lambda t: pa.struct([("x", t), ("y", pa.int8())])),
    ),
    max_leaves=3,
)
TYPES = st.one_of(
    LEAVES,
    LEAVES,
    NESTED,
    st.builds(
        lambda t, a, b: pa.list_(pa.list_(t, a), b), st.sampled_from(PLAIN), st.integers(1, 2), st.integers(1, 3)
    ),
    st.sampled_from([pa.list_view(pa.int32()), pa.large_list_view(pa.int32()), pa.null()]),
    st.just(pa.map_(pa.string(), pa.int32())),
    st.builds(
        pa.dictionary,
        st.sampled_from([pa.int8(), pa.int32()]),
        st.sampled_from([pa.string(), pa.int64(), pa.float32()]),
    ),
    st.just(pa.run_end_encoded(pa.int32(), pa.int64())),
    st.sampled_from([pa.uuid(), pa.bool8(), pa.json_(), pa.opaque(pa.int32(), "thing", "somebody")]),
    st.builds(
        lambda shape, order: pa.fixed_shape_tensor(pa.float32(), shape, permutation=order),
        st.just([2, 1, 3]),
        st.sampled_from([None, [0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]]),
    ),
)


def array_of(kind: Any, values: list[Any]) -> Any:
    """An array of these values in one piece."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, len(values) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))
    return pa.array(values, kind)


def dictionary_with_null(array: Any) -> Any:
    """The same rows, some of which are missing because the dictionary's entry is."""
    grown = pa.concat_arrays([pa.nulls(1, array.type.value_type), array.dictionary])
    codes = [0 if code is None else code + 1 for code in array.indices.to_pylist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes, array.type.index_type), grown)


@st.composite
def columns(draw: st.DrawFn, rows: int = ROWS, kinds: st.SearchStrategy[Any] = TYPES) -> tuple[Any, Any]:
    """A chunked array of one type, and the plainest array of the same values."""
    kind = draw(kinds)
    values = draw(st.lists(values_of(kind, draw(st.booleans())), min_size=rows, max_size=rows))
    for row in draw(st.sets(st.integers(0, rows - 1), max_size=rows)) if draw(st.booleans()) else ():
        values[row] = None
    whole = array_of(kind, values)
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 1))
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=2))) if not pa.types.is_null(kind) else []
    chunks = []
    for start, stop in zip([0, *cuts], [*cuts, rows], strict=True):
        padded = values[start:stop]
        padded = [*(values[:1] * before), *padded, *(values[-1:] * after)]
        chunk = array_of(kind, padded)
        if pa.types.is_dictionary(kind) and draw(st.booleans()):
            chunk = dictionary_with_null(chunk)
        chunks.append(chunk.slice(before, stop - start))
    return pa.chunked_array(chunks, kind), whole


@st.composite
def arrow_tables(draw: st.DrawFn, width: int = 2) -> tuple[Any, dict[str, Any]]:
    """A table with a column `row` that numbers its rows, and its columns as the plainest arrays."""
    made = {f"c{i}": draw(columns()) for i in range(draw(st.integers(1, width)))}
    numbers = pa.array(range(ROWS))
    table = pa.table({"row": numbers, **{name: chunked for name, (chunked, _) in made.items()}})
    return table, {"row": numbers, **{name: whole for name, (_, whole) in made.items()}}


# --- pandas -----------------------------------------------------------------------------------------------------------


@st.composite
def pandas_frames(draw: st.DrawFn) -> Any:
    import pandas as pd

    made = {f"c{i}": draw(st.sampled_from([*PANDAS])) for i in range(draw(st.integers(1, 2)))}
    found = {name: draw(PANDAS[key]) for name, key in made.items()}
    return pd.DataFrame({"row": np.arange(ROWS), **found}, index=range(100, 100 + ROWS))


def _series(values: st.SearchStrategy[Any], dtype: Any) -> st.SearchStrategy[Any]:
    import pandas as pd

    rows = st.lists(values, min_size=ROWS, max_size=ROWS)
    return rows.map(lambda v: pd.Series(v, dtype=dtype, index=range(100, 100 + ROWS)))


def _pandas() -> dict[str, st.SearchStrategy[Any]]:
    import pandas as pd

    nan, none = st.just(float("nan")), st.none()
    stamps = st.integers(0, 10**18).map(pd.Timestamp)
    objects = {
        "nanoseconds": stamps | none,
        "large ints": st.sampled_from([2**62 + 1, 1, -1]) | none,
        "ints over 64 bits": st.sampled_from([2**70, 1]),
        "zones": st.sampled_from([pd.Timestamp(5, tz="UTC"), pd.Timestamp(7, tz="Europe/Zurich"), pd.Timestamp(9)]),
        "text and bytes": st.sampled_from(["x", b"y", ""]),
        "text": TEXT | none,
        "text and NaN": TEXT | nan | none,
        "half a pair": st.sampled_from(["\ud800", "a"]),
        "bytes": st.binary(max_size=3) | none,
        "dicts": st.sampled_from([{"a": 1}, {"b": 2}, {"a": None}, {}]),
        "like dicts": st.sampled_from([{"a": 1, "b": [1]}, {"a": 2, "b": []}]) | none,
        "lists": st.lists(st.integers(0, 5), max_size=2),
        "tuples": st.tuples(st.integers(0, 5)),
        "truth": st.booleans() | none,
        "truth and ints": st.booleans() | st.integers(0, 3),
        "floats": st.floats() | none,
        "NA": st.just(pd.NA) | st.integers(0, 3) | none,
        "decimals": st.decimals(-10, 10, places=2),
        "dates": st.dates() | none,
        "moments": MOMENTS | none,
        "arrays": st.lists(st.integers(0, 9), max_size=3).map(np.array),
        "uuids": st.uuids(),
        "numpy scalars": st.integers(-128, 127).map(np.int8) | none,
    }
    found = {f"object: {name}": _series(values, object) for name, values in objects.items()}
    found |= {f"numpy {t}": _series(st.integers(0, 100), t) for t in ("int8", "uint64", "float32", "complex64", "bool")}
    found |= {f"numpy M8[{u}]": _series(stamps | st.just(pd.NaT), f"M8[{u}]") for u in ("s", "ms", "us", "ns")}
    found["numpy m8[ns]"] = _series(st.integers(0, 9).map(pd.Timedelta), "m8[ns]")
    found |= {t: _series(st.integers(0, 100) | st.just(pd.NA), t) for t in ("Int8", "UInt64", "boolean")[:2]}
    found["boolean"] = _series(st.booleans() | st.just(pd.NA), "boolean")
    found["Float64"] = _series(st.floats(allow_nan=False) | st.just(pd.NA), "Float64")
    found["string"] = _series(TEXT | st.just(pd.NA), "string")
    found["str"] = _series(TEXT | none, "str")
    found["category"] = _series(st.sampled_from(["a", "b", None]), "category")
    found["category of ints"] = _series(st.sampled_from([3, 1, None]), pd.CategoricalDtype([3, 2, 1], ordered=True))
    found["category of moments"] = _series(
        st.sampled_from([pd.Timestamp(5), None]), pd.CategoricalDtype([pd.Timestamp(5), pd.Timestamp(7)])
    )
    found["tz"] = _series(st.integers(0, 10**18).map(lambda n: pd.Timestamp(n, tz="UTC")), "datetime64[ns, Asia/Tokyo]")
    found["period"] = _series(st.integers(0, 999).map(lambda n: pd.Period(ordinal=n, freq="M")), "period[M]")
    found["interval"] = _series(st.integers(0, 9).map(lambda n: pd.Interval(n, n + 1)), "interval[int64, right]")
    found["sparse"] = _series(st.sampled_from([0, 1, 2]), pd.SparseDtype("int64", 0))
    arrow = (
        pa.int64(),
        pa.string(),
        pa.list_(pa.int8()),
        pa.timestamp("us", "Europe/Zurich"),
        pa.float64(),
        pa.date32(),
    )
    found |= {f"ArrowDtype {t}": _series(values_of(t) | st.just(pd.NA), pd.ArrowDtype(t)) for t in arrow[1:]}
    return found


PANDAS = _pandas()


# --- polars and numpy -------------------------------------------------------------------------------------------------


@st.composite
def polars_frames(draw: st.DrawFn) -> Any:
    import polars as pl

    enum = pl.Enum(["a", "b", "c"])
    kinds = {
        **{t: st.integers(0, 100) for t in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt64)},
        pl.Float32: st.floats(width=32),
        pl.Float64: st.floats(),
        pl.Boolean: st.booleans(),
        pl.String: TEXT,
        pl.Binary: st.binary(max_size=3),
        pl.Date: st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1)),
        pl.Time: st.times(),
        pl.Datetime("ms"): MOMENTS.map(lambda t: t.replace(microsecond=0)),
        pl.Datetime("us", "Europe/Zurich"): MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC)),
        pl.Datetime("ns"): MOMENTS,
        pl.Duration("us"): st.timedeltas(dt.timedelta(-100), dt.timedelta(100)),
        pl.Categorical: st.sampled_from(["u", "v"]),
        enum: st.sampled_from(["a", "c"]),
        pl.Decimal(10, 2): st.decimals(-10, 10, places=2),
        pl.List(pl.Int32): st.lists(st.integers(0, 9), max_size=3),
        pl.List(pl.String): st.lists(TEXT, max_size=2),
        pl.Array(pl.Float32, 2): st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2),
        pl.Array(pl.Int8, (2, 2)): st.just([[1, 2], [3, 4]]),
        pl.Struct({"x": pl.Int8, "y": pl.String}): st.fixed_dictionaries({"x": st.integers(0, 9), "y": TEXT}),
        pl.Null: st.none(),
    }
    made = {}
    for i in range(draw(st.integers(1, 2))):
        dtype = draw(st.sampled_from([*kinds]))
        values = kinds[dtype] if draw(st.booleans()) else kinds[dtype] | st.none()
        made[f"c{i}"] = pl.Series(draw(st.lists(values, min_size=ROWS, max_size=ROWS)), dtype=dtype, strict=False)
    frame = pl.DataFrame({"row": range(ROWS), **made})
    cut = draw(st.integers(0, ROWS))
    return pl.concat([frame[:cut], frame[cut:]], rechunk=False) if draw(st.booleans()) else frame


DTYPES = ("bool", "int8", "uint64", "float16", "float64", "complex64", "M8[D]", "M8[ns]", "m8[us]", "M8[10us]", "M8[h]")


@st.composite
def numpy_frames(draw: st.DrawFn) -> Any:
    """Arrays of one to three dimensions of many dtypes; some with masks, for rows or for elements."""
    made: dict[str, Any] = {"row": np.arange(ROWS)}
    for i in range(draw(st.integers(1, 2))):
        shape = (ROWS, *draw(st.sampled_from([(), (), (2,), (3, 2), (0,), (1, 2, 2)])))
        dtype = draw(
            st.sampled_from(
                [
                    "bool",
                    "int8",
                    "uint64",
                    "float16",
                    "float64",
                    "complex64",
                    "M8[D]",
                    "M8[ns]",
                    "m8[us]",
                    "M8[10us]",
                    "M8[h]",
                ]
            )
        )
        size = int(np.prod(shape))
        raw = draw(st.lists(st.integers(0, 120), min_size=size, max_size=size))
        values = np.array(raw, np.int64).astype(dtype).reshape(shape)
        if draw(st.booleans()):
            mask = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape).astype(bool)
            made[f"c{i}"] = np.ma.MaskedArray(values, mask)
        else:
            made[f"c{i}"] = values[::-1][::-1] if draw(st.booleans()) else values
    return made
