"""Lists of one size in each other, in tables whose units are slices: pyarrow takes and filters other rows there."""

from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.tables.stored import datasets as dataset_sources

pa = pytest.importorskip("pyarrow", reason="not installed")
pc = pytest.importorskip("pyarrow.compute", reason="not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="not installed")

ROWS = 30
PAIRS = pa.list_(pa.list_(pa.int32(), 1), 2)
KINDS: dict[str, tuple[Any, Any]] = {
    "list": (PAIRS, lambda i: [[i], [i + 1]]),
    "struct": (pa.struct([("a", PAIRS)]), lambda i: {"a": [[i], [i + 1]]}),
    "lists": (pa.list_(PAIRS), lambda i: [[[i], [i + 1]]] * (i % 3)),
}


def table(kind: str) -> Any:
    form, value = KINDS[kind]
    return pa.table({"row": range(ROWS), "x": pa.array([value(i) for i in range(ROWS)], form)})


def check(pipe: Pipe[Any], kind: str, rows: list[int]) -> None:
    batches = list(Loader(pipe.batch(4, as_="arrow")))
    found = {row: x for b in batches for row, x in zip(b["row"].to_pylist(), b["x"].to_pylist(), strict=True)}
    assert found == {i: KINDS[kind][1](i) for i in rows}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_files(tmp_path: Path, format: str, kind: str) -> None:
    path = tmp_path / f"a.{format}"
    if format == "parquet":
        pq.write_table(table(kind), path, row_group_size=10)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table(kind).schema) as writer:
            writer.write_table(table(kind), max_chunksize=10)
    pipe = getattr(Pipe, format)(path)
    check(pipe.shuffle(), kind, list(range(ROWS)))
    check(pipe.filter(pc.field("row") > 6).shuffle(), kind, list(range(7, ROWS)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_mapped_data_sets(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    datasets = pytest.importorskip("datasets", reason="not installed")
    monkeypatch.setattr(dataset_sources, "MEMORY", 100)
    monkeypatch.setattr(dataset_sources, "STRETCH", 7)
    pipe = Pipe.of(datasets.Dataset(table(kind)))
    assert "memory-mapped" in repr(pipe)
    check(pipe.shuffle(), kind, list(range(ROWS)))
    check(pipe.filter(pc.field("row") > 6).shuffle(), kind, list(range(7, ROWS)))
