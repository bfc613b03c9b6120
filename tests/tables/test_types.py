"""Every Arrow type, in every form: delivered right, or refused by name."""

from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="Arrow types need pyarrow")

pd = pytest.importorskip("pandas", reason="not installed")

from headrace import Loader, Pipe  # noqa: E402
from headrace.errors import BadPipe  # noqa: E402
from headrace.tables.convert.forms import deliver  # noqa: E402
from headrace.tables.convert.frames import table_of  # noqa: E402
from tests.tables.arrow_types import ARRAYS, HOLES  # noqa: E402

CASES = [pytest.param(array, id=name) for name, array in ARRAYS.items()]
CASES += [pytest.param(array, id=f"{name} with holes") for name, array in HOLES.items()]
ORDER = np.array([2, 0, 1])

TORCH = {
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "halffloat",
    "float",
    "double",
}
TORCH |= {"string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary[2]"}
TORCH |= {"list<item: int32>", "large_list<item: int32>", "list_view<item: int32>", "large_list_view<item: int32>"}
TORCH |= {
    "fixed_size_list<item: float>[2]",
    "run_end_encoded<run_ends: int32, values: int64>",
    "extension<arrow.bool8>",
}
TORCH |= {"dictionary<values=string, indices=int8, ordered=0>", "dictionary<values=int64, indices=int32, ordered=0>"}
TORCH |= {"fixed_size_list<item: fixed_size_list<item: int8>[1]>[2]", "fixed_size_list<item: int32>[0]"}
TORCH |= {name for name in ARRAYS if "fixed_shape_tensor" in name}
NOT_IN_POLARS = {
    "month_day_nano_interval",
    "decimal256(50, 2)",
    "fixed_size_list<item: int32>[0]",
    *(name for name in ARRAYS if "union" in name or "list_view" in name),
}


def taken(array: Any) -> Any:
    table = table_of(pa.table({"other": pa.array([1, 2, 3]), "x": array}))
    assert table is not None
    return table.take(ORDER)


def plain(value: Any) -> Any:
    """A value of any package as plain Python that compares."""
    if isinstance(value, np.ma.MaskedArray | np.ndarray):
        return (
            [plain(v) for v in value.tolist()] if value.dtype.kind not in "mM" else plain(value.astype(object).tolist())
        )
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "as_py"):
        return plain(value.as_py())
    return value


def expected(array: Any) -> list[Any]:
    values = array.to_pylist()
    return [plain(values[i]) for i in ORDER]


def expected_arrays(array: Any) -> list[Any]:
    """The same, where values are arrays: a tensor has its logical shape then, whatever order it is stored in."""
    if isinstance(array.type, pa.FixedShapeTensorType):
        return [plain(value) for value in array.to_numpy_ndarray()[ORDER]]
    return expected(array)


def integers(array: Any) -> list[Any]:
    """Times as the numbers that they are stored as."""
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    return [array.view(width).to_pylist()[i] for i in ORDER]


@pytest.mark.parametrize("array", CASES)
def test_numpy_holds_every_type_and_masks_what_is_missing(array: Any) -> None:
    found = deliver(taken(array), "numpy")["x"]
    missing = None in array.to_pylist() and not pa.types.is_null(array.type)
    if found.dtype.kind in "mM":
        got = [
            None if m else int(v) for v, m in zip(found.astype(np.int64).data, np.ma.getmaskarray(found), strict=True)
        ]
        assert got == integers(array)
    else:
        assert plain(found) == expected_arrays(array)
    if found.dtype != object:
        assert isinstance(found, np.ma.MaskedArray) == missing
    elif missing:
        assert found[2] is None


@pytest.mark.parametrize("array", CASES)
def test_arrow_gives_back_the_type_that_came_in(array: Any) -> None:
    found = deliver(taken(array), "arrow")["x"]
    kind = array.type.value_type if pa.types.is_run_end_encoded(array.type) else array.type
    assert found.type == kind
    assert plain(found.to_pylist()) == expected(array)


@pytest.mark.parametrize("array", CASES)
def test_pandas_holds_every_type(array: Any) -> None:
    pandas = pytest.importorskip("pandas", reason="not installed")
    found = deliver(taken(array), "pandas")["x"]
    back = pa.array(found, from_pandas=True)
    want = pa.array(found.array).type if isinstance(found.dtype, pandas.ArrowDtype) else back.type
    assert back.cast(want).to_pylist() == [array.to_pylist()[i] for i in ORDER] or plain(found.tolist()) == expected(
        array
    )
    if not isinstance(found.dtype, pandas.ArrowDtype):
        assert None not in array.to_pylist()


@pytest.mark.parametrize("array", CASES)
def test_polars_holds_what_it_has_a_type_for_and_the_rest_is_refused(array: Any) -> None:
    pytest.importorskip("polars", reason="not installed")
    if str(array.type) in NOT_IN_POLARS:
        with pytest.raises(BadPipe, match=r"column 'x' is .*polars cannot hold that"):
            deliver(taken(array), "polars")
        return
    found = deliver(taken(array), "polars")["x"]
    if "uuid" in str(array.type):
        assert found.to_list() == [v and v.bytes for v in expected(array)]
    elif pa.types.is_map(array.type):
        assert [None if m is None else list(map(list, dict(m).items())) for m in found.to_list()] == expected(array)
    elif pa.types.is_date64(array.type):
        assert [v and v.date() for v in found.to_list()] == expected(array)
    else:
        assert plain(found.to_list()) == expected(array)


@pytest.mark.parametrize("array", CASES)
def test_torch_holds_numbers_text_and_lists_of_numbers_and_the_rest_is_refused(array: Any) -> None:
    torch = pytest.importorskip("torch", reason="not installed")
    if str(array.type) not in TORCH or None in array.to_pylist():
        with pytest.raises(BadPipe, match=r"column 'x' is .*torch cannot hold that"):
            deliver(taken(array), "torch")
        return
    found = deliver(taken(array), "torch")["x"]
    if isinstance(found, torch.Tensor):
        assert found.tolist() == expected_arrays(array)
    else:
        assert [v.tolist() if isinstance(v, torch.Tensor) else v for v in found] == expected_arrays(array)


@pytest.mark.parametrize("array", CASES)
def test_a_row_holds_the_same_values_as_the_batch(array: Any) -> None:
    table = taken(array)
    batch = deliver(table, "numpy")["x"]
    for row in range(3):
        value = table.row(row)["x"]
        if np.ma.getmaskarray(batch)[row].any():
            assert value is None
        else:
            assert repr(plain(value)) == repr(plain(batch[row]))


def test_a_tensor_column_keeps_its_shape() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    table = table_of(pa.table({"x": column}))
    assert table is not None
    batch = table.take(np.array([3, 1]))
    np.testing.assert_array_equal(deliver(batch, "numpy")["x"], values[[3, 1]])
    assert deliver(batch, "arrow")["x"].type == column.type
    np.testing.assert_array_equal(deliver(batch, "arrow")["x"].combine_chunks().to_numpy_ndarray(), values[[3, 1]])


@pytest.mark.parametrize("dtype", [">i4", "float128", "U3"])
def test_what_torch_has_no_dtype_for_is_refused_with_its_name(dtype: str) -> None:
    with pytest.raises(BadPipe, match=r"column 'x' is .*: torch cannot hold that"):
        list(Loader(Pipe.of({"x": np.ones(2, dtype)}).batch(2, as_="torch")))


def test_runs_that_pandas_wraps_are_decoded_for_good() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
    frame = pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(pa.chunked_array([runs]))})
    (batch,) = Loader(Pipe.of(frame).batch(3, as_="pandas"))
    assert batch["x"].dtype == pd.ArrowDtype(pa.string())
    assert pa.array(batch["x"]).to_pylist() == ["a", "a", None]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_tensor_of_a_batch_can_be_changed_in_place_with_one_that_requires_grad(workers: int) -> None:
    torch = pytest.importorskip("torch", reason="not installed")
    pipe = Pipe.of({"a": np.arange(4.0), "b": np.arange(4.0)}).batch(4, as_="torch")
    with Loader(pipe, workers=workers) as loader:
        (batch,) = loader
    batch["a"] *= torch.full((4,), 2.0, dtype=torch.float64, requires_grad=True)
    assert batch["a"].tolist() == [0, 2, 4, 6]
    assert batch["b"].tolist() == [0, 1, 2, 3]
    assert not batch["b"].requires_grad
