"""What came of a numpy array, compared bit by bit: also NaN, -0.0 and instants that Python has no word for."""

from typing import Any

import numpy as np
import pyarrow as pa

WHOLE = {"M": "i8", "m": "i8"}


def check(form: str, column: Any, values: Any) -> None:
    """A delivered column holds exactly these values, and nothing where they are masked."""
    if form == "torch":
        return compare(column.numpy(), values)
    if form == "pandas" and not hasattr(column.dtype, "pyarrow_dtype"):
        if values.dtype.kind in "SU":
            assert column.tolist() == values.tolist()
            return None
        return compare(column.to_numpy(), values)
    if form in ("arrow", "pandas", "polars"):
        array = pa.array(column) if form == "pandas" else column.to_arrow() if form == "polars" else column
        return compare_arrow(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, values)
    return compare(column, values)


def compare(got: Any, want: Any) -> None:
    """Two arrays, or two cells of them; None and numpy's `masked` are a cell that is wholly masked."""
    hidden = np.ma.getmaskarray(want)
    if got is None or got is np.ma.masked:
        assert hidden.all(), (got, want)
        return
    assert np.array_equal(np.ma.getmaskarray(got), hidden), (got, want)
    got, want = np.ma.getdata(got), np.ma.getdata(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), (got, want)
    assert np.all((_bits(got) == _bits(want)) | hidden), (got, want)


def _bits(values: Any) -> Any:
    if values.dtype == np.longdouble or values.dtype.kind in "U":  # not all of its bits mean something
        return values
    found = np.ascontiguousarray(values).reshape(values.shape)
    return found.view(f"V{values.dtype.itemsize}") if values.dtype.itemsize else found


def compare_arrow(array: Any, values: Any) -> None:
    hidden, plain = np.ma.getmaskarray(values), np.ma.getdata(values)
    if plain.dtype.kind in "mM":
        hidden = hidden | np.isnat(plain)
    leaf, shape = _leaf(array)
    assert shape == plain.shape, (shape, plain.shape)
    assert np.array_equal(leaf.is_null().to_numpy(zero_copy_only=False).reshape(shape), hidden), (array, values)
    if plain.dtype.kind in "SU":
        listed = [v for v, hide in zip(leaf.to_pylist(), hidden.ravel(), strict=True) if not hide]
        assert listed == plain[~hidden].tolist(), (listed, plain[~hidden])
        return
    got, want = _numbers(leaf).reshape(shape)[~hidden], plain[~hidden]
    if plain.dtype.kind in "mM":
        # In another unit they are the same moment: numpy says if that cannot be.
        unit = leaf.type.unit if hasattr(leaf.type, "unit") else "D"
        assert np.array_equal(got.astype(object), _counted(want, unit)), (array, values)
        return
    assert np.all(_bits(got.astype(want.dtype)) == _bits(want)), (array, values)


def _counted(values: Any, unit: str) -> Any:
    """Moments as whole numbers of a unit, however large."""
    per = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    own, count = np.datetime_data(values.dtype)
    return np.array([int(v) * count * per[own] // per[unit] for v in values.view(np.int64)], object)


def _leaf(array: Any) -> tuple[Any, tuple[int, ...]]:
    """The innermost values of lists of one size, and the shape that they have together."""
    shape: tuple[int, ...] = (len(array),)
    while isinstance(array, pa.ExtensionArray) or pa.types.is_fixed_size_list(array.type):
        if isinstance(array, pa.ExtensionArray):
            shape, array = (*shape[:-1], shape[-1], *array.type.shape), array.storage
            array = array.flatten()
            continue
        shape, array = (
            (*shape, array.type.list_size),
            array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size),
        )
    return array, shape


def _numbers(leaf: Any) -> Any:
    kind = leaf.type
    if pa.types.is_temporal(kind):
        whole = leaf.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        return whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return leaf.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False)
