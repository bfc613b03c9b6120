from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for number in range(2):
        base = number * 10
        table = pa.table({"i": range(base, base + 10), "s": [f"s{i}" for i in range(base, base + 10)]})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4)
    return [str(tmp_path / f"{number}.parquet") for number in range(2)]


def test_rows_come_as_dicts_from_paths_and_from_streams(files: list[str]) -> None:
    expected = [{"i": i, "s": f"s{i}"} for i in range(20)]
    assert check_file_op(Pipe.of(files).load_parquet()) == expected
    assert check_file_op(Pipe.of(files).open_files("rb").load_parquet(), workers=False) == expected


def test_row_groups_are_dealt_out_one_by_one(files: list[str]) -> None:
    groups = Pipe.of([(path, number) for path in files for number in range(3)])
    assert check_file_op(groups.load_parquet(["i"])) == [{"i": i} for i in range(20)]
    with Loader(groups.shuffle().load_parquet(["i"]), workers=2, seed=3) as loader:
        assert sorted(row["i"] for row in loader) == list(range(20))


def test_a_row_group_may_come_as_columns_or_as_a_table(files: list[str]) -> None:
    columns: list[Any] = list(Pipe.of(files).load_parquet(form="columns"))
    assert [group["i"].tolist() for group in columns[:3]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert columns[0]["i"].dtype == np.int64
    tables: list[Any] = list(Pipe.of(files).load_parquet(["s"], form="table"))
    assert [table.num_rows for table in tables] == [4, 4, 2, 4, 4, 2]
    assert tables[0].column_names == ["s"]


def test_an_unknown_form_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="load_parquet"):
        Pipe.of(["x"]).load_parquet(form="frame")


def test_a_file_that_is_no_table_is_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"nothing of that kind")
    with pytest.raises(pa.ArrowInvalid):
        list(Pipe.of([str(tmp_path / "x.parquet")]).load_parquet())
