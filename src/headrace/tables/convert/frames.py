"""Frames of other packages as tables; numbers are not copied.

    dict of numpy arrays or tensors    one column each, of equal length
    numpy structured array, memmap     its fields; rows stay together
    pandas DataFrame                   numpy columns as they are (NaN stays NaN), others through Arrow; no index
    pyarrow Table, RecordBatch         its columns
    polars DataFrame, all that has     through Arrow; a RecordBatchReader is read whole, once
      `__arrow_c_stream__`

What kind of frame an object is, the module of its type says: no package is imported to find out.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.tables.column import Column, NumpyColumn
from headrace.tables.convert.from_arrow import from_arrow
from headrace.tables.convert.objects import arrow_field
from headrace.tables.packages import pa, pandas, polars
from headrace.tables.table import Table


def table_of(data: Any) -> Table | None:
    """The object as a table, or None if it is not a frame."""
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        return _from_dict(data)
    if isinstance(data, np.ndarray):
        return _from_records(data) if data.dtype.names is not None and data.ndim == 1 else None
    top = {kind.__module__.partition(".")[0] for kind in type(data).__mro__}
    if "pandas" in top and isinstance(data, pandas.DataFrame):
        return _from_pandas(data)
    if "polars" in top and isinstance(data, polars.LazyFrame):
        raise BadOption("a polars LazyFrame has no rows yet: call collect() on it, or give Pipe.parquet() the files")
    if "pyarrow" in top and type(data).__name__ == "InMemoryDataset":
        return _from_arrow(data.to_table())
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        # A Series or an Array has the interface too, but is one column without a name.
        return _from_arrow(data) if hasattr(data, "columns") or hasattr(data, "schema") else None
    return None


def is_array(value: object) -> bool:
    """A numpy array or a torch tensor with rows."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.dim() > 0


def _from_dict(data: Mapping[Any, Any]) -> Table | None:
    if not data or not all(isinstance(k, str) and is_array(v) for k, v in data.items()):
        return None
    return Table.of({name: _from_array(name, value) for name, value in data.items()})


def _from_array(name: str, value: Any) -> Column:
    if isinstance(value, np.ma.MaskedArray):
        return NumpyColumn(value.data, np.ma.getmaskarray(value), _field(value.data))
    if isinstance(value, np.ndarray):
        return NumpyColumn(value if isinstance(value, np.memmap) else np.asarray(value), None, _field(value))
    try:
        return NumpyColumn(value.detach().numpy())
    except (RuntimeError, TypeError) as error:
        raise BadOption(
            f"column {name!r} is a tensor that numpy cannot look into ({error}); move or cast it first"
        ) from None


def _field(values: NDArray[Any]) -> Any:
    return arrow_field(values) if values.dtype == object else None


def _from_records(data: NDArray[Any]) -> Table:
    names = data.dtype.names or ()
    if isinstance(data, np.ma.MaskedArray):
        return Table.of({name: _from_array(name, data[name]) for name in names})
    data = np.ascontiguousarray(data)
    return Table({name: NumpyColumn(data[name], None, _field(data[name])) for name in names}, len(data), data)


def _from_arrow(data: object) -> Table:
    _check_polars(data)
    whole = data if isinstance(data, pa.Table) else pa.table(data)
    _check_unique(whole.schema.names)
    columns = {f.name: from_arrow(column, f) for f, column in zip(whole.schema, whole.columns, strict=True)}
    return Table(columns, whole.num_rows)


def _check_polars(data: object) -> None:
    """Refuse Python objects in polars frames: polars exports them as addresses, which only polars can read."""
    if "polars" not in sys.modules or not isinstance(data, polars.DataFrame):
        return
    for name, dtype in data.schema.items():
        if "Object" in str(dtype) and _holds_objects(dtype):
            raise BadOption(
                f"column {name!r} is {dtype}, which only polars can read: give it as a list of Python objects "
                f"({{{name!r}: np.array(frame[{name!r}].to_list(), object)}}), or cast or drop it"
            )


def _holds_objects(dtype: Any) -> bool:
    inner = [field.dtype for field in getattr(dtype, "fields", ())] or [getattr(dtype, "inner", None)]
    return dtype == polars.Object or any(_holds_objects(part) for part in inner if part is not None)


def _from_pandas(frame: Any) -> Table:
    names = [str(name) for name in frame.columns]
    _check_unique(names)
    found: dict[str, Column] = {}
    for i, name in enumerate(names):
        series = frame.iloc[:, i]
        if series.dtype == object:
            found[name] = _from_objects(series.to_numpy())
        elif isinstance(series.dtype, np.dtype):
            found[name] = NumpyColumn(series.to_numpy())
        else:
            found[name] = _from_series(name, series)
    return Table(found, len(frame))


def _from_objects(values: NDArray[Any]) -> Column:
    """Text and bytes as Arrow columns, which are cheap to send to workers; all other objects as they are."""
    field = arrow_field(values)
    if field not in ("string", "binary"):
        return NumpyColumn(values, None, field)
    return replace(from_arrow(pa.array(values.tolist(), field)), dtype="object")


def _from_series(name: str, series: Any) -> Column:
    if isinstance(series.dtype, pandas.SparseDtype):
        return NumpyColumn(series.sparse.to_dense().to_numpy(), None, None, _named(series.dtype))
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadOption(
            f"column {name!r} ({series.dtype}) has no Arrow form ({error}): cast it to another dtype, or drop it"
        ) from None
    if pa.types.is_dictionary(array.type) and isinstance(array.type.value_type, pa.BaseExtensionType):
        # Periods and intervals: Arrow does not send a dictionary of them to another process as one.
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.storage, ordered=array.type.ordered)
    column = from_arrow(array)
    runs = pa.types.is_run_end_encoded(array.type)  # decoded for good
    return column if runs else replace(column, dtype=_named(series.dtype, array))


def _named(dtype: Any, array: Any = None) -> Any:
    """The name of a pandas dtype, where that is enough: workers that do not need the dtype need not import pandas."""
    if isinstance(dtype, pandas.CategoricalDtype):
        # The categories are in the Arrow column, and so is their dtype, mostly.
        return "category" if array.dictionary.to_pandas().dtype == dtype.categories.dtype else dtype
    try:
        same = pandas.api.types.pandas_dtype(str(dtype)) == dtype
    except (TypeError, NotImplementedError):  # there is no such name, or not for all of the type
        same = False
    return str(dtype) if same else dtype


def _check_unique(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadOption(f"two columns have the name {twice!r}: rename one of them")
