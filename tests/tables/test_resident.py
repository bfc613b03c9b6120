"""Units that never leave their slots: gathered at once they give what they give one by one."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.tables.batch_transfer import DepartingText
from headrace.tables.column import ArrowColumn
from headrace.tables.stored.unit_table import UnitTable

KINDS = {
    "string": (pa.string(), st.text(max_size=9)),
    "large_string": (pa.large_string(), st.text(max_size=9)),
    "binary": (pa.binary(), st.binary(max_size=40)),
    "large_binary": (pa.large_binary(), st.binary(max_size=40)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(0, 9), max_size=3)),
}


def in_units(table: pa.Table, sizes: list[int], memory: int = 1 << 20, masked: bool = True) -> UnitTable:
    """The rows of a table, `sizes` of them in each unit."""
    ends = np.cumsum(sizes)

    def read(unit: int, names: list[str]) -> Iterator[Any]:
        part = table.select(names).slice(int(ends[unit] - sizes[unit]), sizes[unit])
        return iter(part.combine_chunks().to_batches())

    missing = frozenset(table.column_names if masked else ())
    return UnitTable(table.schema, missing, ends, read, memory, lambda names: 50 * len(names))


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[int]]:
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    rows = sum(sizes)
    columns = {}
    for name in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True)):
        kind, values = KINDS[name]
        missing = draw(st.sampled_from(("none", "some", "all")))
        value = {"none": values, "some": st.none() | values, "all": st.none()}[missing]
        columns[name] = pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind)
    return pa.table(columns), sizes


@given(made=tables(), data=st.data())
def test_rows_gathered_at_once_are_those_of_the_table(made: tuple[pa.Table, list[int]], data: st.DataObject) -> None:
    table, sizes = made
    units = in_units(table, sizes)
    expected = table.to_pylist()
    for _ in range(4):
        positions = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=30))
        found = units.take(np.array(positions, np.int64))
        for name, column in found.columns.items():
            if isinstance(column, ArrowColumn):
                column.array.validate(full=True)
                values = column.array.to_pylist()
            else:
                assert column.mask is not None
                values = np.where(column.mask, None, column.values.astype(object)).tolist()
            assert values == [expected[p][name] for p in positions]


@pytest.mark.parametrize(
    ("kind", "memory", "at_once"),
    [("string", 1 << 20, True), ("large_binary", 1 << 20, True), ("list", 1 << 20, False), ("string", 1 << 14, False)],
)
def test_what_was_met_is_gathered_at_once_where_all_fits_and_is_text(
    kind: str, memory: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"string": "a" * 40, "large_binary": b"b" * 40, "list": [1, 2, 3]}
    units = in_units(pa.table({"x": pa.array([values[kind]] * 1000, KINDS[kind][0])}), [100] * 10, memory)
    positions = np.arange(0, 1000, 7)
    first = units.take(positions)
    by_unit = []
    monkeypatch.setattr(
        UnitTable, "_fetch", lambda self, unit, *args: by_unit.append(unit) or _fetch(self, unit, *args)
    )
    assert units.take(positions).columns["x"].array.equals(first.columns["x"].array)
    assert (not by_unit) == at_once


_fetch = UnitTable._fetch


def test_a_text_longer_than_its_slot_has_room_for_comes_from_elsewhere() -> None:
    sizes = [10] * 8  # unit 5 is not one of those that are measured
    texts = ["x" * (50_000 if row // 10 == 5 else 5) for row in range(80)]
    units = in_units(pa.table({"x": texts}), sizes)
    for _ in range(3):
        found = units.take(np.arange(79, -1, -1))
        assert found.columns["x"].array.to_pylist() == texts[::-1]


def test_workers_that_share_the_slots_give_every_epoch_whole(tmp_path: Path) -> None:
    texts = [f"row {row} " * (row % 7) for row in range(3000)]
    pq.write_table(pa.table({"key": np.arange(3000), "text": texts}), tmp_path / "a.parquet", row_group_size=100)
    pipe = Pipe.parquet(tmp_path / "a.parquet").shuffle().batch(50)
    with Loader(pipe, workers=2) as loader:
        for _ in range(3):
            found = {int(k): t for batch in loader for k, t in zip(batch["key"], batch["text"], strict=True)}
            assert [found[row] for row in range(3000)] == texts


@pytest.mark.parametrize("form", ["numpy", "torch"])
@pytest.mark.parametrize("workers", [0, 2])
def test_text_that_travels_as_bytes_arrives_as_it_was_in_every_form(form: str, workers: int, tmp_path: Path) -> None:
    texts = [f"zeile {row} ß€😀 " * 9 for row in range(400)]
    holes = [None if row % 3 else text for row, text in enumerate(texts)]
    raw = [text.encode()[: row % 50] for row, text in enumerate(texts)]
    table = pa.table(
        {"raw": raw, "key": np.arange(400), "text": pa.array(texts, pa.large_string())}
        | ({"holes": holes} if form == "numpy" else {})
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=64)
    pipe = Pipe.parquet(tmp_path / "a.parquet").shuffle().batch(100, as_=form)
    with Loader(pipe, workers=workers) as loader:
        for _ in range(2):
            for batch in loader:
                assert list(batch) == table.column_names
                assert type(batch["text"]) is (np.ndarray if form == "numpy" else list)
                for name in batch:
                    assert list(batch[name]) == [table[name][int(key)].as_py() for key in batch["key"]]


def test_a_function_behind_the_batch_sees_strings(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["word " * 20] * 300}), tmp_path / "a.parquet")
    pipe = Pipe.parquet(tmp_path / "a.parquet").batch(100).map(lambda batch: {t.upper() for t in batch["text"]})
    with Loader(pipe, workers=2) as loader:
        assert list(loader) == [{"WORD " * 20}] * 3


def test_text_that_is_no_utf_8_is_an_error_of_its_op(tmp_path: Path) -> None:
    texts = pa.array([b"\xff" * 50] * 300, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    with (
        Loader(Pipe.parquet(tmp_path / "a.parquet").batch(100), workers=1) as loader,
        pytest.raises(pa.ArrowException) as caught,
    ):
        next(iter(loader))
    assert "in columns(), at position 0, in worker 0" in "".join(caught.value.__notes__)


@given(seed=st.integers(0, 1000), rows=st.integers(0, 300), kind=st.sampled_from((pa.string(), pa.large_string())))
def test_a_slice_of_a_column_travels_without_the_rest_of_its_memory(seed: int, rows: int, kind: Any) -> None:
    draw = Random(seed)
    texts = [draw.choice((None, "", "aß€😀" * draw.randrange(9))) for _ in range(300)]
    whole = pa.array(["x" * 10_000, *texts], kind)
    for part in (whole.slice(1, rows), whole.slice(0, rows), pa.array(texts[:rows], kind)):
        if DepartingText.fits(part):
            sent = pickle.dumps(DepartingText(part, listed=False))
            assert pickle.loads(sent).tolist() == part.to_pylist()
            assert len(sent) < 2 * part.nbytes + 1000
