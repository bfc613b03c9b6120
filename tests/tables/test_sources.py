"""Frames of every kind give the same rows and the same batches, and nothing is imported for what is not a frame."""

import importlib.util
import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption, BadPipe
from tests.conftest import RunScript
from tests.depth import depth
from tests.tables.frames import KINDS, frame, numbers


@pytest.mark.parametrize("rows", [0, 1, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_batches(kind: str, rows: int, tmp_path: Path) -> None:
    if kind == "memmap" and rows == 0:
        pytest.skip("an empty file cannot be mapped")
    want = list(Loader(Pipe.of(numbers(rows)).shuffle().batch(8), seed=1))
    got = list(Loader(Pipe.of(frame(kind, rows, tmp_path)).shuffle().batch(8), seed=1))
    assert repr(got) == repr(want)
    assert all(type(batch) is dict for batch in got)


SENT = ("dict", "structured", "memmap", "pandas", "polars", "arrow")
SPAWNED = depth(("pandas",), SENT)  # to whom a frame travels as to a server


@pytest.mark.parametrize(
    ("kind", "method"), [*product(SENT, ("fork", "server")), *((kind, "spawn") for kind in SPAWNED)]
)
def test_every_kind_of_frame_reaches_every_kind_of_worker(kind: str, method: Any, tmp_path: Path) -> None:
    pipe = Pipe.of(frame(kind, 100, tmp_path)).shuffle().batch(8)
    with Loader(pipe, seed=1, workers=2, start_method=method) as loader:
        assert repr(list(loader)) == repr(list(Loader(pipe, seed=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_dicts_of_the_values_in_the_batch(kind: str, tmp_path: Path) -> None:
    rows = list(Loader(Pipe.of(frame(kind, 10, tmp_path))))
    assert [row["k"] for row in rows] == list(range(10))
    assert type(rows[3]) is dict
    assert rows[3]["c1"] == 6
    assert rows[3]["c1"].dtype == np.float32


def test_numbers_are_looked_at_where_they_lie() -> None:
    from headrace.tables.column import NumpyColumn
    from headrace.tables.convert.frames import table_of

    data = numbers(10)
    table = table_of(data)
    assert table is not None
    column = table.columns["c1"]
    assert isinstance(column, NumpyColumn)
    assert np.shares_memory(column.values, data["c1"])


@pytest.mark.parametrize("method", ["fork", "server"])
def test_a_mapped_file_that_was_replaced_is_mapped_anew(method: Any, tmp_path: Path) -> None:
    path, other = tmp_path / "rows.npy", tmp_path / "other.npy"
    for factor in (1, 10):
        whole = np.zeros(6, [("x", "i8"), ("y", "f4")])
        whole["x"] = np.arange(6) * factor
        np.save(other, whole)
        os.replace(other, path)
        mapped = np.load(path, mmap_mode="r")
        for given in (mapped, {"x": mapped["x"], "y": mapped["y"]}):
            with Loader(Pipe.of(given).batch(6), workers=1, start_method=method) as loader:
                assert [batch["x"].tolist() for batch in loader] == [whole["x"].tolist()]


def test_a_dict_of_tensors_and_arrays_of_several_dimensions() -> None:
    torch = pytest.importorskip("torch", reason="not installed")
    images = torch.arange(60).reshape(10, 2, 3)
    pipe = Pipe.of({"image": images, "label": np.arange(10)}).shuffle().batch(4, as_="torch")
    with Loader(pipe, workers=1, start_method="fork") as loader:
        for batch in loader:
            assert torch.equal(batch["image"], images[batch["label"]])


def test_missing_values_are_masked_and_arrive_masked() -> None:
    pa = pytest.importorskip("pyarrow", reason="not installed")
    whole = pa.table({"n": pa.array([1, None, 3, 4] * 600), "s": pa.array(["a", None] * 1200), "x": np.arange(2400.0)})
    pipe = Pipe.of(whole).batch(1200)
    with Loader(pipe, workers=1, start_method="fork") as loader:
        got = list(loader)
    assert repr(got) == repr(list(Loader(pipe)))
    assert isinstance(got[0]["n"], np.ma.MaskedArray)
    assert got[0]["n"].tolist()[:4] == [1, None, 3, 4]
    assert got[0]["s"].tolist()[:2] == ["a", None]


def test_nan_in_pandas_stays_nan_and_pandas_dtypes_come_back() -> None:
    pd = pytest.importorskip("pandas", reason="not installed")
    given = pd.DataFrame(
        {
            "f": [1.5, float("nan"), 3.0],
            "i": pd.array([1, None, 3], dtype="Int64"),
            "c": pd.Categorical(["b", None, "a"], categories=["a", "b", "z"], ordered=True),
            "s": ["x", None, "z"],
            "z": pd.to_datetime(["2020-01-01", None, "2021-06-01"]).tz_localize("Europe/Zurich"),
            "p": pd.period_range("2020-01", periods=3, freq="M"),
            "o": [{"a": 1}, {"a": 2}, {"a": 3}],
        },
        index=[7, 8, 9],
    )
    batch = next(iter(Loader(Pipe.of(given).batch(3))))
    assert np.isnan(batch["f"][1])
    assert not isinstance(batch["f"], np.ma.MaskedArray)
    for how in ({}, {"workers": 1}):
        with Loader(Pipe.of(given).batch(3, as_="pandas"), **how) as loader:
            pd.testing.assert_frame_equal(next(iter(loader)), given.reset_index(drop=True))


def categories_of_every_dtype() -> dict[str, Any]:
    pd = pytest.importorskip("pandas", reason="not installed")
    days = pd.to_datetime(["2020-01-01", "2021-01-01"])
    found = {dtype: pd.Index([1, 2], dtype=dtype) for dtype in ("int8", "uint64", "float32", "Int64", "int64[pyarrow]")}
    found |= {dtype: pd.Index(["x", "y"], dtype=dtype) for dtype in ("object", "str", "string[pyarrow]")}
    found |= {"days": days, "zoned": days.tz_localize("Europe/Zurich"), "spans": pd.to_timedelta([1, 2])}
    return found | {"months": pd.period_range("2020", periods=2, freq="M"), "cut": pd.cut([1, 2], [0, 1, 5]).categories}


@pytest.mark.parametrize("workers", [0, 1])
def test_categories_of_every_dtype_come_back(workers: int) -> None:
    pd = pytest.importorskip("pandas", reason="not installed")
    made = {name: pd.Categorical.from_codes([1, -1, 0], index) for name, index in categories_of_every_dtype().items()}
    given = pd.DataFrame(made)
    with Loader(Pipe.of(given).batch(3, as_="pandas"), workers=workers) as loader:
        (got,) = loader
    pd.testing.assert_frame_equal(got, given)


def test_periods_and_intervals_have_their_arrow_types_in_workers_too() -> None:
    pd = pytest.importorskip("pandas", reason="not installed")
    given = pd.DataFrame({"p": pd.period_range("2020", periods=3, freq="M"), "i": pd.interval_range(0, 3)})
    pipe = Pipe.of(given).batch(3, as_="arrow")
    with Loader(pipe, workers=1) as loader:
        assert [batch.schema for batch in loader] == [batch.schema for batch in Loader(pipe)]


def test_polars_dtypes_come_back() -> None:
    pl = pytest.importorskip("polars", reason="not installed")
    given = pl.DataFrame(
        {
            "s": ["a", None, "c"],
            "c": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
            "e": pl.Series(["u", "v", "u"], dtype=pl.Enum(["v", "u"])),
            "l": [[1, 2], [], None],
            "t": pl.Series([{"x": 1}, {"x": 2}, None]),
            "n": [1, None, 3],
        }
    )
    for how in ({}, {"workers": 1}):
        with Loader(Pipe.of(given).batch(3, as_="polars"), **how) as loader:
            got = next(iter(loader))
        assert got.schema == given.schema
        assert got.equals(given)


@pytest.mark.parametrize("form", ["arrow", "polars"])
def test_objects_that_arrow_would_change_are_refused_when_the_batch_is_asked_for(form: str) -> None:
    pd = pytest.importorskip("pandas", reason="not installed")
    pytest.importorskip("pyarrow", reason="not installed")
    frame = pd.DataFrame({"n": [1, 2], "x": pd.Series(["x", b"y"], dtype=object)})
    with pytest.raises(BadPipe, match=rf"column 'x' is object: {form} cannot hold that.*cast it"):
        Pipe.of(frame).shuffle().batch(2, as_=form)
    assert Pipe.of(frame).select("n").batch(2, as_=form) is not None


def test_a_polars_column_of_objects_is_refused_when_it_is_given() -> None:
    pl = pytest.importorskip("polars", reason="not installed")
    with pytest.raises(BadOption, match=r"column 'x' is Object, which only polars can read"):
        Pipe.of(pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}))


def test_a_forked_worker_says_that_polars_cannot_be_used_in_it_instead_of_waiting_forever() -> None:
    pl = pytest.importorskip("polars", reason="not installed")
    pytest.importorskip("pyarrow", reason="not installed")
    frame = pl.DataFrame({"a": [1, 2]}).sort("a")
    with (
        pytest.raises(BadPipe, match=r"forked worker cannot make polars frames.*start_method='server'"),
        Loader(Pipe.of(frame).batch(1, as_="polars"), workers=1, start_method="fork") as loader,
    ):
        list(loader)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"a": np.arange(3), "b": np.arange(4)}, "'b' has 4 rows, but 'a' has 3"),
    ],
)
def test_a_frame_that_cannot_be_one_is_refused_when_it_is_given(data: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Pipe.of(data)


def test_two_columns_of_one_name_are_refused() -> None:
    pa = pytest.importorskip("pyarrow", reason="not installed")
    with pytest.raises(BadOption, match=r"two columns have the name 'a'"):
        Pipe.of(pa.table([[1], [2]], names=["a", "a"]))


def test_a_lazy_frame_is_refused_with_what_to_do() -> None:
    pl = pytest.importorskip("polars", reason="not installed")
    with pytest.raises(BadOption, match=r"collect"):
        Pipe.of(pl.LazyFrame({"a": [1]}))


def test_what_is_not_a_frame_is_what_it_was() -> None:
    assert list(Pipe.of({"a": 1, "b": 2})) == ["a", "b"]
    assert list(Pipe.of([{"a": 1}])) == [{"a": 1}]
    assert [x.tolist() for x in Pipe.of(np.arange(4).reshape(2, 2))] == [[0, 1], [2, 3]]
    assert list(Pipe.of([1, 2, 3]).batch(2)) == [[1, 2], [3]]


def test_an_unknown_form_is_refused_at_once() -> None:
    with pytest.raises(BadOption, match=r"as_=.*'numpy'.*not 'tensorflow'"):
        Pipe.of(numbers(3)).batch(2, as_="tensorflow")
    with pytest.raises(BadOption, match=r"dataframe"):
        Pipe.of([1, 2]).batch(2, as_="torch")


def test_a_form_that_cannot_hold_a_column_says_which_and_what_to_do() -> None:
    pytest.importorskip("torch", reason="not installed")
    data = {"when": np.array(["2020-01-01"], "datetime64[D]"), "x": np.ones(1)}
    with pytest.raises(BadPipe, match=r"'when' is datetime64\[D\]: torch cannot hold that; leave out with select"):
        list(Loader(Pipe.of(data).batch(1, as_="torch")))


def test_many_columns_that_a_form_cannot_hold_are_told_in_a_line_for_each_cure() -> None:
    days = {f"day {i}": np.array(["2020-01-01"], "datetime64[D]") for i in range(5)}
    gaps = {f"gap {i}": np.ma.masked_array([1.0], [True]) for i in range(2)}
    with pytest.raises(BadPipe) as refused:
        Pipe.of({**days, **gaps, "x": np.ones(1)}).batch(1, as_="torch")
    title, without, filled = str(refused.value).splitlines()
    assert title == "torch cannot hold 7 of these 8 columns:"
    assert without.startswith("  'day 0' (datetime64[D]), 'day 1' (datetime64[D]), 'day 2' (datetime64[D]) and 2 more")
    assert without.endswith(
        ": leave out with select(), or turn into numbers with map(fn, batched=True) before batch(as_='torch')"
    )
    assert filled.startswith("  'gap 0' (float64 with missing values), 'gap 1'")
    assert max(map(len, (title, without, filled))) <= 200


def test_a_batch_of_columns_is_collated_already() -> None:
    pipe = Pipe.of(numbers(10)).batch(4)
    assert repr(list(Loader(pipe.collate()))) == repr(list(Loader(pipe)))
    assert next(iter(Loader(pipe.collate(lambda c: c["k"].sum())))) == 6


def test_jax_arrays_are_made_in_the_consumer_and_never_narrowed(run_script: RunScript) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    # In a process of its own: once jax is loaded, every fork of the process is warned about.
    done = run_script(
        """
        import numpy as np
        from headrace import Loader, Pipe
        from headrace.errors import BadPipe

        if __name__ == "__main__":
            pipe = Pipe.of({"x": np.arange(8, dtype=np.float32), "k": np.arange(8, dtype=np.int32)}).batch(4, as_="jax")
            with Loader(pipe, workers=1) as loader:
                batches = list(loader)
            import jax
            assert isinstance(batches[0]["x"], jax.Array)
            assert batches[1]["k"].tolist() == [4, 5, 6, 7]
            try:
                list(Loader(Pipe.of({"k": np.arange(8)}).batch(4, as_="jax")))
            except BadPipe as error:
                assert "'k' is int64" in str(error) and "jax_enable_x64" in str(error), error
            else:
                raise AssertionError("int64 was narrowed")
        """
    )
    assert done.returncode == 0, done.stderr


def test_no_package_is_imported_for_what_is_not_its_frame(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        from headrace import Pipe
        Pipe.of([1, 2]).batch(2)
        assert "numpy" not in sys.modules
        import numpy as np
        from headrace import Loader
        list(Loader(Pipe.of({"x": np.arange(4)}).shuffle().batch(2)))
        loaded = {"pandas", "polars", "pyarrow", "torch", "jax", "datasets"} & set(sys.modules)
        assert not loaded, loaded
        """
    )
    assert done.returncode == 0, done.stderr
