"""What cannot be is said when a frame pipe is made, with whose column it is and what to write instead."""

import datetime as dt
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption, BadPipe

pa: Any = pytest.importorskip("pyarrow")
pc: Any = pytest.importorskip("pyarrow.compute")
pandas: Any = pytest.importorskip("pandas")
polars: Any = pytest.importorskip("polars")
torch: Any = pytest.importorskip("torch")

TABLE = pa.table(
    {
        "id": [1, 2, 3], "gap": pa.array([1, None, 3]), "day": [dt.datetime(2020, 1, 1)] * 3, "city": ["a", "b", "c"],
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(), "record": [{"a": 1}] * 3,
    }
)  # fmt: skip


@pytest.fixture(params=["parquet", "table", "pandas"])
def pipe(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(TABLE, tmp_path / "a.parquet")
        return Pipe.parquet(tmp_path / "a.parquet")
    return Pipe.of(TABLE if request.param == "table" else TABLE.to_pandas())


def test_all_that_torch_cannot_hold_is_said_at_once_when_the_pipe_is_made(pipe: Any) -> None:
    with pytest.raises(BadPipe) as refused:
        pipe.shuffle().batch(2, as_="torch")
    named = re.findall(r"'(\w+)' \(", str(refused.value))
    can = {"id", "city", "kind"} | ({"gap"} if pipe.op.template()["gap"].values.dtype == float else set())
    assert set(named) == set(TABLE.column_names) - can
    (batch, _) = Loader(pipe.select(*sorted(can)).batch(2, as_="torch"))
    assert set(batch) == can


def test_a_map_in_pandas_becomes_tensors_without_a_warning() -> None:
    frame = pandas.DataFrame({"x": np.arange(8.0), "y": np.arange(8)})
    pipe = Pipe.of(frame).map(lambda f: f.assign(z=f["x"] + 1), batched=True, as_="pandas").batch(4, as_="torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, _ = Loader(pipe)
    first["x"][0] = 7
    assert first["z"].tolist() == [1, 2, 3, 4]
    assert frame["x"][0] == 0


@pytest.mark.parametrize("other", [polars.col("id") > 1, "id > 1", pandas.Series([True, False, True])])
def test_a_filter_that_is_no_expression_of_pyarrow_is_told_which_one_is(pipe: Any, other: Any) -> None:
    with pytest.raises(
        BadOption, match=r"needs a function, not \w+; or a pyarrow expression: pyarrow\.compute\.field\('x'\) > 0"
    ):
        pipe.filter(other)


def test_a_misspelt_field_is_named_without_the_whole_schema(pipe: Any) -> None:
    with pytest.raises(BadOption, match=r"there is no column 'idd'$"):
        pipe.filter(pc.field("idd") > 1)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"one": 1.0}, "a dict in which column 'one' is a float: make an array"),
        ({"a": np.zeros(3), 4: np.zeros(3)}, "a dict with the key 4: names of columns are text"),
        ({}, "an empty dict"),
        (None, "not NoneType"),
    ],
)
def test_what_a_function_of_columns_must_not_return_is_named(result: Any, said: str) -> None:
    pipe = Pipe.of({"a": np.arange(3)}).map(lambda _: result, batched=True).batch(3)
    with pytest.raises(BadPipe, match=said):
        list(Loader(pipe))
