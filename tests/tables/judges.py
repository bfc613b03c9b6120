"""What a column is in a form, as the plain Python that pyarrow would give: so that forms can be compared with it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

NANOSECONDS = pa.time64("ns")


def same(one: Any, two: Any) -> bool:
    """Equal and of one type, all the way down; NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and same(one.tolist(), two.tolist())
    if type(one) is not type(two):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(v, two[k]) for k, v in one.items())
    if isinstance(one, float | np.floating):
        return bool((one == two and math.copysign(1, one) == math.copysign(1, two)) or (one != one and two != two))
    return one is two or bool(one == two) or bool(one != one and two != two)


def tensor(kind: Any, flat: list[Any] | None) -> Any:
    """A stored tensor as nested lists in the order of its dimensions."""
    if flat is None:
        return None
    found = np.array(flat, object).reshape(kind.shape)
    return (found if kind.permutation is None else found.transpose(kind.permutation)).tolist()


def is_tensor(kind: Any) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.fixed_shape_tensor"


def wanted(array: Any, rows: Sequence[int]) -> list[Any]:
    """The rows of the plainest array, as Python has them."""
    if array.type == NANOSECONDS:  # Python's time of day ends at microseconds
        array = array.view(pa.int64())
    values = array.storage.to_pylist() if is_tensor(array.type) else array.to_pylist()
    return [tensor(array.type, values[row]) if is_tensor(array.type) else values[row] for row in rows]


def inner(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind


def of_numpy(value: Any, kind: Any) -> Any:
    """A value of numpy's form as pyarrow would give it."""
    kind = inner(kind)
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, np.ndarray):
        assert not isinstance(value, np.ma.MaskedArray) or value.mask.any(), "masked, though nothing is missing"
        below = kind.value_type if hasattr(kind, "value_type") else kind
        if is_tensor(kind):
            return [of_numpy(v, kind) if isinstance(v, np.ndarray) else of_numpy(v, below) for v in value]
        return [of_numpy(v, below) for v in value]
    if isinstance(value, np.datetime64 | np.timedelta64):
        if kind == NANOSECONDS:
            return int(value.view(np.int64))
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array([int(value.view(np.int64))], width).view(kind)[0].as_py()
    return value.item() if isinstance(value, np.generic) else value


def given(form: str, column: Any, kind: Any) -> list[Any]:
    """The rows of a delivered column as Python has them."""
    if form == "arrow":
        assert column.type == inner(kind) if pa.types.is_run_end_encoded(kind) else column.type == kind
        return wanted(column.combine_chunks(), range(len(column)))
    if form == "pandas":
        import pandas as pd

        if isinstance(column.dtype, pd.ArrowDtype):
            whole = column.array.__arrow_array__().combine_chunks()
            return wanted(whole, range(len(whole)))
        return [of_numpy(value, kind) for value in column.to_numpy()]
    if form == "torch" and not isinstance(column, list):
        column = column.numpy()
    elif form == "torch":
        column = [value if isinstance(value, str | bytes) else value.numpy() for value in column]
    return [of_numpy(value, kind) for value in column]


def numbers_only(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def in_torch(kind: Any, array: Any) -> bool:
    """Whether the documentation says that torch holds this column."""
    types, kind = pa.types, inner(kind)
    if None in wanted(array, range(len(array))):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name in ("arrow.bool8", "arrow.fixed_shape_tensor")
    if numbers_only(kind) or types.is_string(kind) or types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return True
    text = (types.is_large_string, types.is_string_view, types.is_large_binary, types.is_binary_view)
    if any(test(kind) for test in text):
        return True
    lists = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    if any(test(kind) for test in lists):
        return numbers_only(kind.value_type) and not _hollow(array)
    while types.is_fixed_size_list(kind):
        if _hollow(array):
            return False
        kind = kind.value_type
    return numbers_only(kind)


def _hollow(array: Any) -> bool:
    def missing(value: Any) -> bool:
        return value is None or (isinstance(value, list) and any(map(missing, value)))

    return any(map(missing, array.to_pylist()))
