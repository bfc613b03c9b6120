"""Columns as Arrow arrays: of the Arrow type that they came from, or of the one that belongs to their numpy dtype.

No value is converted. Where Arrow has no type (`datetime64[10us]`, mixed objects), pyarrow's own kind of error is
raised; the caller makes a refusal of it that names the column.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.column import ArrowColumn, Column, NumpyColumn, field_of
from headrace.tables.convert.from_arrow import recast
from headrace.tables.convert.objects import UNTYPED, exactly
from headrace.tables.packages import pa

UNITS = {"M": ("D", "s", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}
"""Units of time that Arrow has, for instants and for spans."""


def to_arrow(column: Column) -> Any:
    """The column as a pyarrow array; numbers are not copied."""
    field = field_of(column)
    if isinstance(column, ArrowColumn):
        kind = column.array.type if field is None else field.type
        return recast(column.array, kind)
    if column.values.dtype.hasobject:
        return _objects(column, field)
    kind = _inferred(column.values, column.mask is not None) if field is None else field.type
    return _array(kind, column.values, column.mask if field is not None else _with_nat(column))


def type_of(column: Column) -> Any:
    """The Arrow type that the column has in Arrow; None if it has none."""
    field = field_of(column)
    if field is not None:
        return field.type
    if isinstance(column, ArrowColumn):
        return column.array.type
    try:
        return None if column.values.dtype.hasobject else _inferred(column.values, column.mask is not None)
    except pa.ArrowNotImplementedError:
        return None


def _with_nat(column: NumpyColumn) -> NDArray[np.bool_] | None:
    """The mask, with NaT as missing."""
    if column.values.dtype.kind not in "mM":
        return column.mask
    nat: NDArray[np.bool_] = np.isnat(column.values)
    if not nat.any():
        return column.mask
    mask = column.whole_mask()
    return nat if mask is None else mask | nat


def _array(kind: Any, values: NDArray[Any], mask: NDArray[np.bool_] | None) -> Any:
    """An array of this type; a mask of more than one dimension is for the elements."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.bool8":
            return pa.ExtensionArray.from_storage(kind, pa.array(values.view(np.int8), mask=mask))
        return pa.ExtensionArray.from_storage(kind, _array(kind.storage_type, _stored(kind, values), mask))
    if pa.types.is_fixed_size_list(kind):
        return _lists(kind, values, mask)
    if values.dtype.kind in "SU":  # as Python has them: pyarrow ends each at the first NUL
        return pa.array(values.tolist(), kind, mask=mask)
    if pa.types.is_boolean(kind):
        return pa.array(values, kind, mask=mask)
    if values.dtype.itemsize * 8 != kind.bit_width:
        values = _narrowed(values.astype(np.int64), mask)
    return pa.Array.from_buffers(kind, len(values), [_valid(mask), pa.py_buffer(np.ascontiguousarray(values))])


def _narrowed(wide: NDArray[np.int64], mask: NDArray[np.bool_] | None) -> NDArray[np.int32]:
    """Days and short times of day, which Arrow keeps in 32 bits."""
    values = wide.astype(np.int32)
    if np.any((values != wide) & (True if mask is None else ~mask)):
        raise pa.ArrowInvalid("some of its days are too far away for Arrow's date32")
    return values


def _lists(kind: Any, values: NDArray[Any], mask: NDArray[np.bool_] | None) -> Any:
    rows, inner = len(values), (len(values) * values.shape[1], *values.shape[2:])
    elements = None if mask is None or mask.ndim == 1 else mask.reshape(inner)
    child = _array(kind.value_type, values.reshape(inner), elements)
    valid = _valid(mask if elements is None else None)
    # Not from_arrays(type=): it divides by the size of the lists, and one of 0 ends the process.
    return pa.Array.from_buffers(kind, rows, [valid], children=[child])


def _stored(kind: Any, values: NDArray[Any]) -> NDArray[Any]:
    """Tensors as they are stored: flat, their dimensions in the order of the permutation. (Whole ones may be missing,
    elements not: `_inferred`.)"""
    laid = values if kind.permutation is None else values.transpose(0, *(np.argsort(kind.permutation) + 1))
    return np.ascontiguousarray(laid).reshape(len(values), kind.storage_type.list_size)


def _valid(mask: NDArray[np.bool_] | None) -> Any:
    return None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))


def _inferred(values: NDArray[Any], masked: bool) -> Any:
    """The Arrow type of a numpy array."""
    kind = _scalar(values.dtype)
    if values.ndim == 1:
        return kind
    if values.ndim == 2 or masked or 0 in values.shape[1:]:  # a tensor cannot have missing elements
        for size in reversed(values.shape[1:]):
            kind = pa.list_(kind, size)
        return kind
    return pa.fixed_shape_tensor(kind, values.shape[1:])


def _scalar(dtype: "np.dtype[Any]") -> Any:
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        if unit not in UNITS[dtype.kind] or count != 1:
            raise pa.ArrowNotImplementedError(
                f"Arrow has no unit {dtype}, and pyarrow would take it for another "
                f"(https://github.com/apache/arrow/issues/39756); cast it to one of {', '.join(UNITS[dtype.kind])}"
            )
    if dtype.kind == "S":
        return pa.binary()
    if not dtype.isnative:
        raise pa.ArrowNotImplementedError(
            f"Arrow has no byte order but this machine's; use astype({dtype.newbyteorder('=')})"
        )
    return pa.from_numpy_dtype(dtype)


def _objects(column: NumpyColumn, field: Any) -> Any:
    values = column.values.tolist() if column.mask is None else np.ma.MaskedArray(column.values, column.mask).tolist()
    if column.field == UNTYPED:
        kinds = sorted({type(v).__name__ for v in values})[:5]
        raise pa.ArrowTypeError(
            f"its values are Python objects ({', '.join(kinds)}) that no Arrow type keeps as they are"
        )
    if field is not None:
        return pa.array(values, field.type)
    try:
        return exactly(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise pa.ArrowTypeError(f"no Arrow type keeps these Python objects as they are: {error}") from None
