"""Questions about Arrow types that pyarrow itself does not answer in one call."""

import importlib.util
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.tables.packages import pa

if TYPE_CHECKING:
    from pyarrow import DataType, Field


def inner_types(kind: "DataType") -> list[Any]:
    """The types directly inside a type: fields, the values of a dictionary, the storage of an extension type."""
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(i).type for i in range(kind.num_fields)]


def read_schema(data: bytes) -> Any:
    """A schema that was serialized. pandas has Arrow types of its own (periods, intervals), which pyarrow knows once
    pandas has told it: without that they would be other types in a process that has not imported pandas."""
    if b"pandas." in data and importlib.util.find_spec("pandas") is not None:
        importlib.import_module("pandas.core.arrays.arrow.extension_types")
    return pa.ipc.read_schema(pa.py_buffer(data))


def is_list(kind: "DataType") -> bool:
    """A list, large list, list view or large list view, but not a list of a fixed size."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind)) or is_list_view(kind)


def is_list_view(kind: "DataType") -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def is_view(kind: "DataType") -> bool:
    """Text or bytes that are kept as views."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def is_text(kind: "DataType") -> bool:
    """Whether Arrow keeps columns of this type as offsets and bytes."""
    return kind.id in _offset_sizes()


def offset_size(text: "DataType") -> int:
    """Bytes of an offset in columns of this type of text."""
    return _offset_sizes()[text.id]


@cache
def _offset_sizes() -> dict[int, int]:
    return {pa.string().id: 4, pa.binary().id: 4, pa.large_string().id: 8, pa.large_binary().id: 8}


def is_tensor(kind: "DataType") -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.fixed_shape_tensor"


def enum_values(field: "Field | None") -> dict[bytes, bytes]:
    """What polars writes beside an Enum, as it stands there: which values it has. The type does not say it."""
    said = {} if field is None else field.metadata or {}
    return {key: value for key, value in said.items() if key.startswith(b"_PL_ENUM")}


def numpy_dtype(kind: "DataType") -> "np.dtype[Any] | None":
    """The numpy dtype that holds every value of this type, or None if there is none."""
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    if types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if types.is_date(kind):
        return np.dtype("datetime64[D]" if types.is_date32(kind) else "datetime64[ms]")
    if types.is_duration(kind) or types.is_time(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    return None
