"""Arrow arrays as columns: what every Arrow type becomes in numpy.

    integers, floats, booleans                 numpy arrays of the same width
    timestamp, date                            datetime64 of the same unit; with a time zone: the instant, in UTC
    duration, time of day                      timedelta64 of the same unit; of a time: since midnight
    fixed_size_list, fixed_shape_tensor        one numpy array with the row in front, where nothing is missing inside
    run_end_encoded                            as its values
    all others                                 stay Arrow arrays inside, and are numpy object arrays outside:
        text, binary, json                         str, bytes
        decimal, uuid, interval                    Decimal, UUID, MonthDayNano
        list, list_view, tensor                    numpy arrays (of what the elements become)
        struct, map, union, null                   dict, list of pairs, the value itself, None
        dictionary                                 the values that the codes stand for

Missing values are a mask over numbers (numpy.ma) and None among objects. The way back is in `to_arrow`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.tables.column import ArrowColumn, Column, NumpyColumn
from headrace.tables.convert.arrow_types import inner_types, is_list, is_tensor, is_text, numpy_dtype
from headrace.tables.packages import pa, pc

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, DataType, Field, Schema, Table

Plain = tuple[NDArray[Any], NDArray[np.bool_] | None]
"""Values of a numpy dtype, and the mask of those that are missing."""


def from_arrow(array: "Array | ChunkedArray", field: "Field | None" = None) -> Column:
    """A pyarrow array, or a chunked one, as a column; numbers are not copied unless they lie in several chunks."""
    array = _one_chunk(array)
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
        field = None if field is None else field.with_type(array.type)
    field = field if field is not None else pa.field("", array.type)
    array = _without_null_entries(takeable(array))
    plain = _plain(array)
    if plain is not None:
        return NumpyColumn(*plain, field)
    # Unions and nulls do not count what is missing in them.
    may_miss = bool(array.null_count) or pa.types.is_union(array.type) or pa.types.is_null(array.type)
    return ArrowColumn(unsliced(array), field, None, may_miss)


def unsliced(array: "Array") -> "Array":
    """A copy where lists of one size lie in each other: of a slice of those, pyarrow takes and filters other rows."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if _is_twice_listed(array.type) else array


def takeable(array: "Array") -> "Array":
    """The same values in a type of which pyarrow can take, filter and compare rows: not in runs, and no views of text,
    but text that lies one after another."""
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_decode(array)
    if pa.types.is_dictionary(kind):
        return recast(array, pa.dictionary(kind.index_type, _without_views(kind.value_type), kind.ordered))
    return recast(array, _without_views(kind))


def recast(array: "Array", kind: "DataType") -> "Array":
    """An array with views of text, or without."""
    if array.type == kind:
        return array
    if not pa.types.is_dictionary(kind):
        return array.cast(kind)
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(kind.value_type), ordered=kind.ordered)


def takeable_schema(schema: "Schema") -> "Schema":
    """The schema of `takeable_columns`."""
    return pa.schema([field.with_type(takeable(pa.nulls(0, field.type)).type) for field in schema])


def takeable_columns(table: "Table") -> "Table":
    """A pyarrow table of which rows can be taken and filtered."""
    schema = takeable_schema(table.schema)
    columns = [
        pa.chunked_array([unsliced(takeable(chunk)) for chunk in column.chunks], field.type)
        for field, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _is_twice_listed(kind: "DataType") -> bool:
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(kind.value_type):
        return True
    return any(map(_is_twice_listed, inner_types(kind)))


def _one_chunk(array: "Array | ChunkedArray") -> "Array":
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = _one_dictionary(array)
    try:
        whole = array.combine_chunks()
    except pa.ArrowNotImplementedError:
        raise BadOption(
            f"a column of type {array.type} lies in {array.num_chunks} pieces that pyarrow cannot join: leave it out"
        ) from None
    except pa.ArrowInvalid:
        whole = array
    if isinstance(whole, pa.ChunkedArray):  # more text than 32-bit offsets can count
        whole = array.cast(_with_large_offsets(array.type)).combine_chunks()
    return whole


def _one_dictionary(array: "ChunkedArray") -> "ChunkedArray":
    """The chunks with one dictionary for all."""
    array = pa.chunked_array(map(_without_null_entries, array.chunks), array.type)
    try:
        return array.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadOption(
            f"a column of type {array.type} lies in {array.num_chunks} pieces that pyarrow cannot join ({error}): "
            f"leave it out, or cast it to {array.type.value_type}"
        ) from None


def _without_null_entries(array: "Array") -> "Array":
    """A dictionary may hold null as a value: rows that mean it are simply missing."""
    if not pa.types.is_dictionary(array.type) or not array.dictionary.null_count:
        return array
    valid = array.dictionary.is_valid().to_numpy(zero_copy_only=False)
    codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
    missing = array.indices.is_null().to_numpy(zero_copy_only=False) | ~valid[codes]
    moved = np.where(missing, 0, (np.cumsum(valid) - 1)[codes])
    indices = pa.array(moved, array.type.index_type, mask=missing)
    kept = array.dictionary.filter(pa.array(valid))
    return pa.DictionaryArray.from_arrays(indices, kept, ordered=array.type.ordered)


def _without_views(kind: "DataType") -> "DataType":
    """The same type with large text in the place of views of text."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_map(kind):
        key, item = (f.with_type(_without_views(f.type)) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        field = kind.value_field.with_type(_without_views(kind.value_type))
        made = pa.large_list(field) if types.is_large_list(kind) else pa.list_(field, getattr(kind, "list_size", -1))
        return kind if field.type == kind.value_type else made
    return kind


def _with_large_offsets(kind: "DataType") -> "DataType":
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    return pa.large_list(kind.value_field) if pa.types.is_list(kind) else kind


# --- to numpy ---------------------------------------------------------------------------------------------------------


def _plain(array: "Array") -> Plain | None:
    """The values and the mask, or None if this type has no numpy dtype."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_extension(array)
    if pa.types.is_fixed_size_list(kind):
        return _plain_lists(array)
    dtype = numpy_dtype(kind)
    if dtype is None:
        return None
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_boolean(kind):
        return array.fill_null(False).to_numpy(zero_copy_only=False), mask
    width = kind.bit_width // 8
    stored = array.buffers()[1]
    if stored is None:
        return np.zeros(len(array), dtype), mask
    raw = np.frombuffer(stored, f"V{width}", len(array), array.offset * width)
    if dtype.itemsize != width:  # days and short times of day are kept in 32 bits, and counted by numpy in 64
        return raw.view(np.int32).astype(np.int64).view(dtype), mask
    return raw.view(dtype), mask


def _plain_lists(array: "Array") -> tuple[NDArray[Any], None] | None:
    if array.null_count:
        return None
    size = array.type.list_size
    # Cut by hand: what flatten() makes of a slice with lists inside is then nobody's question.
    inner = _plain(array.values.slice(array.offset * size, len(array) * size))
    if inner is None or inner[1] is not None:
        return None
    return inner[0].reshape(len(array), size, *inner[0].shape[1:]), None


def _plain_extension(array: "Array") -> Plain | None:
    if array.type.extension_name == "arrow.bool8":
        values, mask = _plain(array.storage)  # type: ignore[misc]
        return values.astype(np.bool_), mask
    if is_tensor(array.type) and (found := _plain_lists(array.storage)) is not None:
        return _shaped(array.type, found[0]), None
    return None


def _shaped(kind: "DataType", flat: NDArray[Any]) -> NDArray[Any]:
    """Tensors that are stored flat; a permutation says in which order their dimensions are stored."""
    found = flat.reshape(len(flat), *kind.shape)
    return found if kind.permutation is None else found.transpose(0, *[p + 1 for p in kind.permutation])


def to_numpy(array: "Array", may_miss: bool = True) -> NDArray[Any]:
    """The values of an array that has no plain form, as numpy objects (of a dictionary: as its values become)."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _decoded(array, may_miss)
    if is_text(kind):
        found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return found
    if is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _objects(array, _list_getter(array))
    if is_tensor(kind):
        get = _list_getter(array.storage)
        return _objects(array, lambda row: _shaped(kind, get(row)[None])[0].copy())
    return _objects(array, array.to_pylist().__getitem__)


def _objects(array: "Array", get: Callable[[int], Any]) -> NDArray[Any]:
    found = np.empty(len(array), object)
    for row, valid in enumerate(array.is_valid().to_pylist()):
        if valid:
            found[row] = get(row)  # one by one: numpy would spread a list of lists over two dimensions
    return found


def _list_getter(array: "Array") -> Callable[[int], NDArray[Any]]:
    """What gives one list of an array of lists as a numpy array."""
    dtype = as_numpy(from_arrow(array.slice(0, 0).flatten())).dtype

    def get(row: int) -> NDArray[Any]:
        values = array[row].values
        # Copied, because Arrow's memory is read-only and a row is not.
        return as_numpy(from_arrow(values)).copy() if len(values) else np.empty(0, dtype)

    return get


def _decoded(array: "Array", may_miss: bool) -> NDArray[Any]:
    values = as_numpy(from_arrow(array.dictionary))
    codes = from_arrow(array.indices)
    assert isinstance(codes, NumpyColumn)
    missing = np.zeros(len(array), np.bool_) if codes.mask is None else codes.mask
    found: NDArray[Any] = np.zeros((len(array), *values.shape[1:]), values.dtype)
    found[~missing] = values[codes.values[~missing]]
    if found.dtype.hasobject:
        found[missing] = None
        return found
    return as_numpy(NumpyColumn(found, missing)) if may_miss else found


def as_numpy(column: Column) -> NDArray[Any]:
    """A column as one numpy array: masked where values may be missing, of objects where there is no dtype."""
    if isinstance(column, ArrowColumn):
        return to_numpy(column.array, column.may_miss)
    mask = column.whole_mask()
    return column.values if mask is None else np.ma.MaskedArray(column.values, mask)
