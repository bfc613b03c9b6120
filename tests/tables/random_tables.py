"""Random columns of every Arrow type, with missing values, slices, chunks and offsets, and the values they must give.

The values are made first, as plain Python; the Arrow array is then made of them in a roundabout way (with rows before
and after that are cut off again, in several chunks), so that whatever offset is forgotten shows.
"""

import datetime as dt
import decimal
from typing import Any

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
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
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
    if types.is_union(kind):
        return SCALARS[pa.int64()] | TEXT
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_values(kind)
    if types.is_fixed_size_list(kind):
        return st.lists(inside(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return values_of(kind.value_type)
    if types.is_map(kind):
        return st.lists(st.tuples(values_of(kind.key_type), inside(kind.item_type)), max_size=2)
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


def _union(mode: str, values: list[Any]) -> Any:
    """Numbers and text; what is missing is a missing number."""
    codes = pa.array([int(isinstance(value, str)) for value in values], pa.int8())
    numbers = [None if isinstance(value, str) else value for value in values]
    words = [value if isinstance(value, str) else "" for value in values]
    if mode == "sparse":
        return pa.UnionArray.from_sparse(codes, [pa.array(numbers, pa.int64()), pa.array(words, pa.string())])
    places = pa.array(range(len(values)), pa.int32())
    return pa.UnionArray.from_dense(codes, places, [pa.array(numbers, pa.int64()), pa.array(words, pa.string())])


UNIONS = [_union(mode, [1, "a"]).type for mode in ("sparse", "dense")]
LEAVES = st.sampled_from([*SCALARS])
INSIDE = st.sampled_from([kind for kind in SCALARS if kind != pa.time64("ns")])  # which Python has no word for
NESTED: st.SearchStrategy[Any] = st.recursive(
    INSIDE,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.builds(pa.list_, inner, st.integers(0, 3)),
        inner.map(lambda t: pa.struct([("x", t), ("y", pa.int8())])),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int64()]), inner),
    ),
    max_leaves=3,
)
CODES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
CODED = [pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float32()]
CODED += [pa.float64(), pa.timestamp("ns"), pa.timestamp("us", "Europe/Zurich"), pa.date32(), pa.duration("ms")]
RUNS = [pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.timestamp("us"), pa.date32()]
TENSORS = st.permutations([2, 1, 3]).flatmap(
    lambda shape: st.builds(
        lambda kind, order: pa.fixed_shape_tensor(kind, shape, permutation=order),
        st.sampled_from([pa.float32(), pa.int8(), pa.uint64()]),
        st.none() | st.permutations([0, 1, 2]),
    )
)
TYPES = st.one_of(
    LEAVES,
    LEAVES,
    NESTED,
    NESTED,
    st.builds(
        lambda t, a, b: pa.list_(pa.list_(t, a), b), st.sampled_from(PLAIN), st.integers(1, 2), st.integers(1, 3)
    ),
    INSIDE.map(pa.list_view) | INSIDE.map(pa.large_list_view),
    st.sampled_from([pa.null(), *UNIONS]),
    st.builds(pa.dictionary, st.sampled_from(CODES), st.sampled_from(CODED), ordered=st.booleans()),
    st.builds(pa.run_end_encoded, st.sampled_from([pa.int16(), pa.int32(), pa.int64()]), st.sampled_from(RUNS)),
    st.sampled_from([pa.uuid(), pa.bool8(), pa.json_(), pa.opaque(pa.int32(), "thing", "somebody")]),
    TENSORS,
)


def array_of(kind: Any, values: list[Any]) -> Any:
    """An array of these values in one piece."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, len(values) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))
    if pa.types.is_union(kind):
        return _union(kind.mode, values)
    if pa.types.is_dictionary(kind):
        known = {repr(value): value for value in values if value is not None}  # 0.0 and -0.0 are two entries
        codes = pa.array([None if v is None else [*known].index(repr(v)) for v in values], kind.index_type)
        entries = pa.array([*known.values()], kind.value_type)
        return pa.DictionaryArray.from_arrays(codes, entries, ordered=kind.ordered)
    return pa.array(values, kind)


def shifted(array: Any) -> Any:
    """The same values, but what is nested in them lies behind an offset of its own."""
    kind = array.type
    types = pa.types
    if types.is_struct(kind):
        children = [array.field(i) for i in range(kind.num_fields)]
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        children = [array.values]
    else:
        return array
    if array.offset or not all(len(child) for child in children):
        return array
    moved = [pa.concat_arrays([child.slice(0, 1), shifted(child)]).slice(1) for child in children]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[: kind.num_buffers], children=moved)


def dictionary_with_null(array: Any) -> Any:
    """The same rows, some of which are missing because the dictionary's entry is."""
    grown = pa.concat_arrays([pa.nulls(1, array.type.value_type), array.dictionary])
    codes = [0 if code is None else code + 1 for code in array.indices.to_pylist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes, array.type.index_type), grown, ordered=array.type.ordered)


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
        chunk = shifted(array_of(kind, padded)) if draw(st.booleans()) else array_of(kind, padded)
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
    if draw(st.booleans()):  # as a part of a longer one
        whole = pa.concat_tables([table.slice(0, 1), table, table.slice(ROWS - 1)])
        table = whole.slice(1, ROWS)
    return table, {"row": numbers, **{name: whole for name, (_, whole) in made.items()}}
