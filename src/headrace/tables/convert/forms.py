"""Forms: what a batch of columns is when the user gets it.

    numpy    dict of numpy arrays; missing values are masked (numpy.ma), what has no dtype is an object array
    torch    dict of tensors; text stays a list of str, and lists a list of tensors, as torch's own collate leaves them
    jax      dict of jax arrays
    arrow    pyarrow.Table
    pandas   pandas.DataFrame: numpy dtypes where nothing is missing, pandas' own dtypes otherwise
    polars   polars.DataFrame

What a form cannot hold is refused with the column and its type. Nothing is cast, filled in or left out without a word.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption, BadPipe
from headrace.tables.batch_transfer import BlockColumns, DepartingText, in_torch, tensors
from headrace.tables.column import ArrowColumn, Column, NumpyColumn, field_of, may_miss
from headrace.tables.convert.arrow_types import inner_types, is_list, is_list_view, is_text, is_view
from headrace.tables.convert.from_arrow import as_numpy, from_arrow
from headrace.tables.convert.to_arrow import to_arrow
from headrace.tables.packages import check_threads, jax, pa, pandas, pc, polars, torch
from headrace.tables.table import Table

SHOWN = 8
"""Rows that are looked at to refuse a column before anything runs."""
LONGEST = 60
"""Characters of a type in a refusal."""
NAMED = 3
"""Columns that a refusal names, of those that are refused for the same reason."""


def deliver(table: Table, form: str) -> Any:
    """The table in this form."""
    return _DELIVER[form](table)


def depart(table: Table, form: str) -> Any:
    """The same, in a worker that sends it next: its text becomes this form when it arrives."""
    texts = {
        name: DepartingText(column.array, form == "torch")
        for name, column in table.columns.items()
        if isinstance(column, ArrowColumn) and _departs(column, form)
    }
    if not texts:
        return deliver(table, form)
    rest = {name: column for name, column in table.columns.items() if name not in texts}
    found = deliver(Table(rest, table.length, None, table.blocks), form)
    for name in table.columns:
        found[name] = texts[name] if name in texts else found.pop(name)
    return found


def _departs(column: ArrowColumn, form: str) -> bool:
    if form not in ("numpy", "torch") or (form == "torch" and column.may_miss):
        return False
    return DepartingText.fits(column.array, column.sound)


def check_form(form: str, verb: str) -> None:
    """Refuse a form that does not exist, as an option of this verb."""
    if form not in _DELIVER:
        raise BadOption(f"{verb}(as_=) is one of {', '.join(map(repr, _DELIVER))}, not {form!r}")


class ColumnRefused(BadPipe):
    """A column that a form cannot hold."""

    column = ""
    """Its name and type."""
    hint = ""


def refuse(name: str, column: Column, form: str, hint: str = "") -> NoReturn:
    hint = (
        hint or f"leave out with select(), or turn into numbers with map(fn, batched=True) before batch(as_={form!r})"
    )
    kind = described(column)
    kind = kind if len(kind) <= LONGEST else f"{kind[:LONGEST]}..."
    refused = ColumnRefused(f"column {name!r} is {kind}: {form} cannot hold that; {hint}")
    refused.column, refused.hint = f"{name!r} ({kind})", hint
    raise refused


def described(column: Column) -> str:
    """The type of a column, for people."""
    field = field_of(column)
    if isinstance(column, ArrowColumn):
        return str(column.array.type if field is None else field.type)
    kind = column.values.dtype if field is None or column.values.dtype == object else field.type
    return f"{kind}" if column.mask is None else f"{kind} with missing values"


def _numpy(table: Table) -> dict[str, NDArray[Any]]:
    found = {name: as_numpy(column) for name, column in table.columns.items()}
    return BlockColumns.of("numpy", found, table.blocks)


# --- torch and jax ----------------------------------------------------------------------------------------------------


def _torch(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for names, block in table.blocks:
        if in_torch(block.dtype):
            found |= zip(names, tensors(_writable(block)), strict=True)
    for name, column in table.columns.items():
        if name not in found:
            found[name] = _tensor(name, column, torch.from_numpy)
    return BlockColumns.of("torch", {name: found[name] for name in table.columns}, table.blocks)


def _tensor(name: str, column: Column, from_numpy: Callable[[NDArray[Any]], Any]) -> Any:
    """The column as a tensor, or as a list where torch's own collate would leave one."""
    if isinstance(column, ArrowColumn):
        return _tensor_of_arrow(name, column, from_numpy)
    if column.mask is not None:
        refuse(name, column, "torch", _FILL.format(name=name))
    if not in_torch(column.values.dtype):
        refuse(name, column, "torch")
    return from_numpy(_writable(np.ascontiguousarray(column.values)))


def _writable(values: NDArray[Any]) -> NDArray[Any]:
    """The values; a copy of what nobody may write to (a column of a pandas frame), which no tensor can be."""
    return values if values.flags.writeable else values.copy()


def check_torch(columns: Mapping[str, Column]) -> None:
    """Refuse all that torch cannot hold before anything runs; torch is not imported for it."""
    alike: dict[str, list[ColumnRefused]] = {}
    for name, column in columns.items():
        try:
            _tensor(name, column.slice(0, SHOWN), lambda values: values)
        except ColumnRefused as error:
            alike.setdefault(error.hint.replace(repr(name), ""), []).append(error)
    refused = [error for group in alike.values() for error in group]
    if len(refused) == 1:
        raise refused[0]
    if refused:
        told = [f"torch cannot hold {len(refused)} of these {len(columns)} columns:"]
        for first, *others in alike.values():
            listed = ", ".join(error.column for error in (first, *others[: NAMED - 1]))
            more = f" and {len(others) + 1 - NAMED} more" if len(others) >= NAMED else ""
            told.append(f"  {listed}{more}: {first.hint}")
        raise BadPipe("\n".join(told))


_FILL = "fill them in before: map(lambda c: {{**c, {name!r}: c[{name!r}].filled(0)}}, batched=True)"


def _tensor_of_arrow(name: str, column: ArrowColumn, from_numpy: Callable[[NDArray[Any]], Any]) -> Any:
    kind = column.array.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        values = as_numpy(column)
        if values.dtype != object:
            mask = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
            return _tensor(name, NumpyColumn(np.ma.getdata(values), mask, column.field), from_numpy)
    if is_text(kind) or is_view(kind) or pa.types.is_fixed_size_binary(kind):
        if column.may_miss:
            refuse(name, column, "torch", "it has missing values: fill them in with map(fn, batched=True)")
        return as_numpy(column).tolist()
    if is_list(kind):
        inner = from_arrow(column.array.flatten())
        if isinstance(inner, NumpyColumn) and inner.mask is None and in_torch(inner.values.dtype):
            if column.may_miss or column.array.null_count:
                refuse(name, column, "torch", "it has missing lists: fill them in with map(fn, batched=True)")
            return [from_numpy(_writable(values)) for values in as_numpy(column)]
    refuse(name, column, "torch")


def _jax(table: Table) -> dict[str, Any]:
    found = {}
    for name, column in table.columns.items():
        values = as_numpy(column)
        if np.ma.isMaskedArray(values):
            refuse(name, column, "jax", _FILL.format(name=name))
        if values.dtype.kind not in "biufc":
            refuse(name, column, "jax")
        found[name] = array = jax.numpy.asarray(values)
        if array.dtype != values.dtype:
            refuse(
                name, column, "jax",
                f"it would become {array.dtype}: set jax.config.update('jax_enable_x64', True), or cast it with "
                f"map(fn, batched=True)",
            )  # fmt: skip
    return found


# --- frames -----------------------------------------------------------------------------------------------------------


def arrow_array(name: str, column: Column, form: str) -> Any:
    """The column as an Arrow array on its way to a form, or the refusal with its name."""
    try:
        return to_arrow(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        refuse(name, column, form, f"{error}; cast it, or leave it out with select()")


def check_arrow(columns: Mapping[str, Column], form: str) -> None:
    """Refuse what Arrow has no type for before anything runs; a column of Arrow's has one."""
    for name, column in columns.items():
        if isinstance(column, NumpyColumn):
            arrow_array(name, column.slice(0, SHOWN), form)


def _arrow(table: Table, form: str = "arrow") -> Any:
    arrays, fields = [], []
    for name, column in table.columns.items():
        arrays.append(arrow_array(name, column, form))
        field = field_of(column)
        fields.append(pa.field(name, arrays[-1].type, metadata=None if field is None else field.metadata))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _polars(table: Table) -> Any:
    check_threads("polars")
    made = _arrow(table, "polars")
    for field, column in zip(made.schema, made.columns, strict=True):
        if not _in_polars(field.type):
            refuse(field.name, table.columns[field.name], "polars")
        if "[s" in str(field.type) and not all(_in_milliseconds(chunk) for chunk in column.chunks):
            refuse(field.name, table.columns[field.name], "polars", "some of it is too far away for its milliseconds")
    return polars.from_arrow(made)


def _in_milliseconds(array: Any) -> bool:
    """Whether seconds can be counted in milliseconds, which is what polars does without looking."""
    types, kind = pa.types, array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _in_milliseconds(array.storage)
    if types.is_dictionary(kind):
        return _in_milliseconds(array.dictionary)
    if types.is_map(kind):
        return _in_milliseconds(array.keys) and _in_milliseconds(array.items)
    if types.is_nested(kind):
        inside = array.flatten()
        return all(_in_milliseconds(part) for part in (inside if types.is_struct(kind) else [inside]))
    if not (types.is_timestamp(kind) or types.is_duration(kind)) or kind.unit != "s":
        return True
    ends = pc.min_max(array.view(pa.int64())).as_py()
    return all(end is None or abs(end) < (1 << 63) // 1000 for end in ends.values())


def _in_polars(kind: Any, inside: bool = False) -> bool:
    """Whether polars has this type: it is asked before, because polars panics where it has not."""
    types = pa.types
    short = "decimal32" in str(kind) or "decimal64" in str(kind)  # which it widens, but not in there:
    if short and (types.is_map(kind) or (types.is_struct(kind) and inside)):
        return False
    if is_list_view(kind) or types.is_union(kind) or types.is_interval(kind) or types.is_decimal256(kind):
        return False
    if types.is_fixed_size_list(kind) and kind.list_size == 0:
        return False
    return all(_in_polars(inner, True) for inner in inner_types(kind))


def _pandas(table: Table) -> Any:
    series = {name: _pandas_column(name, column) for name, column in table.columns.items()}
    return pandas.DataFrame(series, index=pandas.RangeIndex(table.length), copy=False)


def _pandas_column(name: str, column: Column) -> Any:
    if isinstance(column, NumpyColumn) and column.dtype is None and _in_pandas(column):
        # Told to pandas, or it would look for another dtype; bytes of a fixed length it has as objects only.
        objects = column.values.dtype == object or column.values.dtype.kind == "S"
        return pandas.Series(column.values, dtype=object, copy=False) if objects else column.values
    array = arrow_array(name, column, "pandas")
    if column.dtype == "category":
        said = isinstance(column.dtype, str)
        categories = array.dictionary.to_pandas() if said else column.dtype.categories
        codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return pandas.Categorical.from_codes(codes, categories, ordered=array.type.ordered)
    if column.dtype is not None:
        dtype = pandas.api.types.pandas_dtype(column.dtype)
        if hasattr(dtype, "__from_arrow__"):
            whole = isinstance(dtype, pandas.IntervalDtype) and dtype.subtype.kind in "iu"
            if not (whole and may_miss(column)):
                return dtype.__from_arrow__(array)
        elif isinstance(column, ArrowColumn) or column.mask is None:
            return pandas.Series(as_numpy(column), dtype=dtype, copy=False)
        # (Nothing can be missing in what is sparse, nor in intervals of whole numbers.)
    return pandas.arrays.ArrowExtensionArray(pa.chunked_array([array]))


def _in_pandas(column: NumpyColumn) -> bool:
    """Whether pandas has the very dtype: it has no days, no times of day, no missing integers, and zones of its own."""
    if column.mask is not None or column.values.ndim != 1:
        return False
    if column.values.dtype.kind not in "mM":
        return True
    field = field_of(column)
    if field is None:
        return np.datetime_data(column.values.dtype) in (("s", 1), ("ms", 1), ("us", 1), ("ns", 1))
    types, kind = pa.types, field.type
    return types.is_duration(kind) or (types.is_timestamp(kind) and kind.tz is None)


_DELIVER: dict[str, Callable[[Table], Any]] = {
    "numpy": _numpy,
    "torch": _torch,
    "jax": _jax,
    "arrow": _arrow,
    "pandas": _pandas,
    "polars": _polars,
}


def form_of(batch: object) -> str | None:
    """The form that an object is in, or None if it is none of them; nothing is imported to find out."""
    top = type(batch).__module__.partition(".")[0]
    if top == "pyarrow":
        return "arrow" if isinstance(batch, pa.Table) else None
    if top in ("pandas", "polars"):
        return top if isinstance(batch, sys.modules[top].DataFrame) else None
    if not isinstance(batch, dict):
        return None
    tensors = any(type(value).__module__.partition(".")[0] == "torch" for value in batch.values())
    return "torch" if tensors else "numpy"
