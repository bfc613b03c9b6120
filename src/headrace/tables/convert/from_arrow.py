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
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.tables.column import ArrowColumn, Column, NumpyColumn
from headrace.tables.packages import pa, pc


def from_arrow(array: Any, field: Any = None) -> Column:
    """A pyarrow array, or a chunked one, as a column; numbers are not copied unless they lie in several chunks."""
    array = _one_piece(array)
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
        field = None if field is None else field.with_type(array.type)
    field = field if field is not None else pa.field("", array.type)
    array = _without_null_entries(_without_views(array))
    found = _plain(array)
    if found is None:
        return ArrowColumn(unsliced(array), field, None, _may_miss(array))
    return NumpyColumn(found[0], found[1], field)


def unsliced(array: Any) -> Any:
    """A copy where lists of one size lie in each other: of a slice of those, pyarrow takes and filters other rows."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if _is_twice_listed(array.type) else array


def unsliced_columns(table: Any) -> Any:
    """The same for the columns of a pyarrow table."""
    for number, field in enumerate(table.schema):
        if _is_twice_listed(field.type):
            chunks = [unsliced(chunk) for chunk in table.column(number).chunks]
            table = table.set_column(number, field, pa.chunked_array(chunks, field.type))
    return table


def _is_twice_listed(kind: Any) -> bool:
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(kind.value_type):
        return True
    return any(_is_twice_listed(kind.field(i).type) for i in range(kind.num_fields))


def _may_miss(array: Any) -> bool:
    """Whether values are missing; of what does not count them (unions) it is taken for granted."""
    return bool(array.null_count) or pa.types.is_union(array.type) or pa.types.is_null(array.type)


def _one_piece(array: Any) -> Any:
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
        whole = array.cast(_large(array.type)).combine_chunks()
    return whole


def _one_dictionary(array: Any) -> Any:
    """The chunks with one dictionary for all; where pyarrow cannot unite them, encoded anew."""
    array = pa.chunked_array([_without_null_entries(chunk) for chunk in array.chunks], array.type)
    try:
        return array.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadOption(
            f"a column of type {array.type} lies in {array.num_chunks} pieces that pyarrow cannot join ({error}): "
            f"leave it out, or cast it to {array.type.value_type}"
        ) from None


def _without_null_entries(array: Any) -> Any:
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


def _without_views(array: Any) -> Any:
    """pyarrow cannot take from views of text: inside, the same values lie one after another."""
    kind = _viewless(array.type)
    return array if kind == array.type else array.cast(kind)


def _viewless(kind: Any) -> Any:
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_map(kind):
        key, item = (f.with_type(_viewless(f.type)) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_viewless(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        field = kind.value_field.with_type(_viewless(kind.value_type))
        made = pa.large_list(field) if types.is_large_list(kind) else pa.list_(field, getattr(kind, "list_size", -1))
        return kind if field.type == kind.value_type else made
    return kind


def _large(kind: Any) -> Any:
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    return pa.large_list(kind.value_field) if pa.types.is_list(kind) else kind


# --- to numpy ---------------------------------------------------------------------------------------------------------


def _plain(array: Any) -> tuple[NDArray[Any], NDArray[np.bool_] | None] | None:
    """The values and the mask, or None if this type has no numpy dtype."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_extension(array)
    if pa.types.is_fixed_size_list(kind):
        return _plain_list(array, kind.list_size)
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


def numpy_dtype(kind: Any) -> "np.dtype[Any] | None":
    """The dtype of a plain column of this Arrow type."""
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    if types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if types.is_date32(kind):
        return np.dtype("datetime64[D]")
    if types.is_date64(kind):
        return np.dtype("datetime64[ms]")
    if types.is_duration(kind) or types.is_time(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    return None


def _plain_list(array: Any, size: int) -> tuple[NDArray[Any], None] | None:
    if array.null_count:
        return None
    # Cut by hand: what flatten() makes of a slice with lists inside is then nobody's question.
    inner = _plain(array.values.slice(array.offset * size, len(array) * size))
    if inner is None or inner[1] is not None:
        return None
    return inner[0].reshape(len(array), size, *inner[0].shape[1:]), None


def _plain_extension(array: Any) -> tuple[NDArray[Any], NDArray[np.bool_] | None] | None:
    name = array.type.extension_name
    if name == "arrow.bool8":
        values, mask = _plain(array.storage)  # type: ignore[misc]
        return values.astype(np.bool_), mask
    if name == "arrow.fixed_shape_tensor":
        found = _plain_list(array.storage, array.type.storage_type.list_size)
        return None if found is None else (_shaped(array.type, found[0]), None)
    return None


def _shaped(kind: Any, flat: NDArray[Any]) -> NDArray[Any]:
    """Tensors that are stored flat; a permutation says in which order their dimensions are stored."""
    found = flat.reshape(len(flat), *kind.shape)
    return found if kind.permutation is None else found.transpose(0, *[p + 1 for p in kind.permutation])


def to_numpy(array: Any, may_miss: bool = True) -> NDArray[Any]:
    """The values of an array that has no plain form, as numpy objects (of a dictionary: as its values become)."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _decoded(array, may_miss)
    if is_text(kind):
        found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return found
    listed = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view)
    if any(test(kind) for test in (*listed, pa.types.is_fixed_size_list)):
        return _objects(array, _lists(array))
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.fixed_shape_tensor":
        inside = _lists(array.storage)
        return _objects(array, lambda row: _shaped(kind, inside(row)[None])[0].copy())
    return _objects(array, array.to_pylist().__getitem__)


def is_text(kind: Any) -> bool:
    """Whether Arrow keeps columns of this type as offsets and bytes."""
    return kind.id in _text_types()


def width_of(text: Any) -> int:
    """Bytes of an offset in columns of this type."""
    return _text_types()[text.id]


@cache
def _text_types() -> dict[int, int]:
    return {pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8}


def _objects(array: Any, get: Callable[[int], Any]) -> NDArray[Any]:
    found = np.empty(len(array), object)
    for row, valid in enumerate(array.is_valid().to_pylist()):
        if valid:
            found[row] = get(row)  # one by one: numpy would spread a list of lists over two dimensions
    return found


def _lists(array: Any) -> Callable[[int], Any]:
    elements: dict[str, Any] = {}

    def get(row: int) -> Any:
        values = array[row].values
        if not elements:
            elements["numpy"] = deliver(from_arrow(array.slice(0, 0).flatten())).dtype
        # Copied, because Arrow's memory is read-only and a row is not.
        return deliver(from_arrow(values)).copy() if len(values) else np.empty(0, elements["numpy"])

    return get


def _decoded(array: Any, may_miss: bool) -> NDArray[Any]:
    values = deliver(from_arrow(array.dictionary))
    codes = from_arrow(array.indices)
    assert isinstance(codes, NumpyColumn)
    missing = np.zeros(len(array), np.bool_) if codes.mask is None else codes.mask
    found: NDArray[Any] = np.zeros((len(array), *values.shape[1:]), values.dtype)
    found[~missing] = values[codes.values[~missing]]
    if found.dtype.hasobject:
        found[missing] = None
        return found
    return deliver(NumpyColumn(found, missing)) if may_miss else found


def deliver(column: Column) -> NDArray[Any]:
    """A column as one numpy array: masked where values may be missing, of objects where there is no dtype."""
    if isinstance(column, ArrowColumn):
        return to_numpy(column.array, column.may_miss)
    mask = None if column.mask is None else column.whole_mask()
    return column.values if mask is None else np.ma.MaskedArray(column.values, mask)
