"""Random columns of every Arrow type, with missing values, slices, chunks and offsets, and the values they must give.

The values are made first, as plain Python; the Arrow array is then made of them in a roundabout way (with rows before
and after that are cut off again, in several chunks), so that whatever offset is forgotten shows.
"""

import datetime as dt
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.tables.random_values import (
    BITS,
    DATES,
    MOMENTS,
    TEXT,
    TIMES,
    Seeds,
    Value,
    changed,
    decimals,
    floating,
    many,
    octets,
    whole,
)

ROWS = 6
INTS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
UNSIGNED = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
SCALARS: dict[Any, Value] = {
    pa.bool_(): BITS,
    **{kind: whole(-(1 << bits), (1 << bits) - 1) for kind, bits in INTS.items()},
    **{kind: whole(0, (1 << bits) - 1) for kind, bits in UNSIGNED.items()},
    **{kind: floating(kind.bit_width) for kind in (pa.float16(), pa.float32(), pa.float64())},
    pa.timestamp("s"): changed(MOMENTS, lambda t: t.replace(microsecond=0)),
    pa.timestamp("ms"): changed(MOMENTS, lambda t: t.replace(microsecond=0)),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "Europe/Zurich"): changed(MOMENTS, lambda t: t.replace(tzinfo=dt.UTC)),
    pa.timestamp("ns"): whole(-(10**18), 10**18),
    pa.date32(): DATES,
    pa.date64(): DATES,
    pa.time32("s"): whole(0, 86_399),
    pa.time32("ms"): whole(0, 86_399_999),
    pa.time64("us"): TIMES,
    pa.time64("ns"): whole(0, 86_399_999_999_999),
    pa.duration("s"): whole(-(10**9), 10**9),
    pa.duration("ms"): whole(-(10**12), 10**12),
    pa.duration("us"): whole(-(10**15), 10**15),
    pa.duration("ns"): whole(-(10**18), 10**18),
    pa.month_day_nano_interval(): changed(many(whole(-99, 99), 3, 3), pa.MonthDayNano),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), TEXT),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), octets(0, 4)),
    pa.binary(2): octets(2, 2),
    pa.decimal32(5, 2): decimals(-999, 999),
    pa.decimal64(9, 2): decimals(-(10**6), 10**6),
    pa.decimal128(20, 2): decimals(-(10**9), 10**9),
    pa.decimal256(50, 2): decimals(-(10**9), 10**9),
}
PLAIN = [pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.timestamp("us"), pa.date32()]
PLAIN += [pa.time32("s"), pa.duration("ns")]


def value_of(kind: Any, draw: Random, holes: bool = True) -> Any:
    """A value that pa.array(..., kind) takes; with `holes`, of some types it may have None inside."""
    types = pa.types

    def inside(part: Any) -> Any:
        return None if holes and draw.random() < 0.25 else value_of(part, draw, holes)

    if kind in SCALARS:
        return SCALARS[kind](draw)
    if types.is_null(kind):
        return None
    if types.is_union(kind):
        return draw.choice([SCALARS[pa.int64()], TEXT])(draw)
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_value(kind, draw)
    if types.is_fixed_size_list(kind):
        return [inside(kind.value_type) for _ in range(kind.list_size)]
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return value_of(kind.value_type, draw)
    if types.is_map(kind):
        return [(value_of(kind.key_type, draw), inside(kind.item_type)) for _ in range(draw.randint(0, 2))]
    if types.is_struct(kind):
        return {field.name: inside(field.type) for field in kind}
    return [inside(kind.value_type) for _ in range(draw.randint(0, 3))]


def _extension_value(kind: Any, draw: Random) -> Any:
    if kind.extension_name == "arrow.uuid":
        return draw.randbytes(16)
    if kind.extension_name == "arrow.bool8":
        return draw.randint(0, 1)
    if kind.extension_name == "arrow.json":
        return draw.choice(['{"a": 1}', "[]", "3", "null"])
    if kind.extension_name == "arrow.fixed_shape_tensor":
        return [value_of(kind.value_type, draw) for _ in range(kind.storage_type.list_size)]
    return value_of(kind.storage_type, draw)


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
TWICE = st.builds(
    lambda t, a, b: pa.list_(pa.list_(t, a), b), st.sampled_from(PLAIN), st.integers(1, 2), st.integers(1, 3)
)
"""Of which pyarrow itself takes rows of a slice from the wrong places, by themselves and inside of others."""
TYPES = st.one_of(
    LEAVES,
    LEAVES,
    NESTED,
    NESTED,
    TWICE,
    TWICE.map(lambda t: pa.struct([("x", t), ("y", pa.int8())])) | TWICE.map(pa.list_),
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


def column_of(kind: Any, draw: Random, rows: int = ROWS, pieces: bool = True) -> tuple[Any, Any]:
    """A chunked array of this type, and the plainest array of the same values."""
    holes = draw.random() < 0.5
    values = [value_of(kind, draw, holes) for _ in range(rows)]
    for row in draw.sample(range(rows), draw.randint(0, rows)) if draw.random() < 0.5 else ():
        values[row] = None
    before, after = draw.randint(0, 2), draw.randint(0, 1)
    cut = draw.randint(0, 2) if pieces and not pa.types.is_null(kind) else 0
    cuts = sorted(draw.randint(0, rows) for _ in range(cut))
    chunks = []
    for start, stop in zip([0, *cuts], [*cuts, rows], strict=True):
        padded = [*(values[:1] * before), *values[start:stop], *(values[-1:] * after)]
        chunk = shifted(array_of(kind, padded)) if draw.random() < 0.5 else array_of(kind, padded)
        if pa.types.is_dictionary(kind) and draw.random() < 0.5:
            chunk = dictionary_with_null(chunk)
        chunks.append(chunk.slice(before, stop - start))
    return pa.chunked_array(chunks, kind), array_of(kind, values)


@st.composite
def arrow_tables(draw: st.DrawFn, width: int = 2) -> tuple[Any, dict[str, Any]]:
    """A table with a column `row` that numbers its rows, and its columns as the plainest arrays."""
    kinds, values = draw(st.lists(TYPES, min_size=1, max_size=width)), draw(Seeds)
    made = {f"c{i}": column_of(kind, values) for i, kind in enumerate(kinds)}
    numbers = pa.array(range(ROWS))
    table = pa.table({"row": numbers, **{name: chunked for name, (chunked, _) in made.items()}})
    if values.random() < 0.5:  # as a part of a longer one
        table = pa.concat_tables([table.slice(0, 1), table, table.slice(ROWS - 1)]).slice(1, ROWS)
    return table, {"row": numbers, **{name: whole for name, (_, whole) in made.items()}}
