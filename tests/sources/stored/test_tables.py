"""Data sets that are folders of tables (Hugging Face, Lance): rows by position; damage is told, never read over."""

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption, BadPipe, HeadraceError
from headrace.sources.stored.format import DamagedFile
from tests.depth import depth

pa = pytest.importorskip("pyarrow", reason="not installed")

ROWS = [{"n": i, "text": "é" * (i % 5), "some": i / 2 if i % 3 else None, "list": [i] * (i % 4)} for i in range(95)]


def write(folder: Path, rows: list[Any] = ROWS, files: int = 2, batch: int = 10, **state: Any) -> Path:
    """A folder as `save_to_disk` writes it."""
    folder.mkdir()
    names = [f"data-{n:05}-of-{files:05}.arrow" for n in range(files)]
    cuts = np.linspace(0, len(rows), files + 1).astype(int).tolist()
    whole = pa.Table.from_pylist(rows)
    for name, first, stop in zip(names, cuts, cuts[1:], strict=False):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as writer:
            writer.write_table(whole.slice(first, stop - first), batch)
    (folder / "dataset_info.json").write_text("{}")
    said = {"_data_files": [{"filename": name} for name in names], "_format_columns": None, **state}
    (folder / "state.json").write_text(json.dumps(said))
    return folder


def plain(sample: Any) -> Any:
    """The same in Python's own types."""
    if isinstance(sample, dict):
        return {name: plain(value) for name, value in sample.items()}
    return sample.tolist() if isinstance(sample, np.ndarray | np.generic) else sample


def rows_of(loader: Any) -> list[Any]:
    return [plain(row) for row in loader]


def test_rows_of_a_folder_come_in_stored_order_in_any_other_and_go_on(tmp_path: Path) -> None:
    folder = write(tmp_path / "d")
    pipe = Pipe.stored(folder)
    assert rows_of(Loader(pipe)) == ROWS
    shuffled = rows_of(Loader(pipe.shuffle(), seed=2))
    assert shuffled != ROWS
    assert sorted(shuffled, key=lambda row: row["n"]) == ROWS
    with Loader(pipe.shuffle(), seed=2, workers=2, start_method="fork") as loader:
        rows = iter(loader)
        first = [plain(next(rows)) for _ in range(31)]
        state = json.loads(json.dumps(loader.state_dict()))
    again = Loader(Pipe.stored(folder).shuffle(), seed=2)
    again.load_state_dict(state)
    assert first + rows_of(again) == shuffled


def test_batches_are_columns_and_record_batches_are_units(tmp_path: Path) -> None:
    pipe = Pipe.stored(write(tmp_path / "d"))
    (batch, *_) = Loader(pipe.batch(4))
    assert batch["n"].tolist() == [0, 1, 2, 3]
    assert pipe.op.units().ends.tolist() == [10, 20, 30, 40, 47, 57, 67, 77, 87, 95]  # type: ignore[attr-defined]


def test_only_the_columns_that_the_data_set_shows_come(tmp_path: Path) -> None:
    assert rows_of(Loader(Pipe.stored(write(tmp_path / "d", _format_columns=["n"]))))[0] == {"n": 0}
    shown = Pipe.stored(write(tmp_path / "e", _format_columns=["n"], _output_all_columns=True))
    assert rows_of(Loader(shown)) == ROWS


def test_streams_with_dictionaries_are_read_as_arrow_files_are(tmp_path: Path) -> None:
    table = pa.table({"word": pa.array(["a", "b", None, "a"]).dictionary_encode(), "n": [1, 2, 3, 4]})
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, 2)
    assert list(Loader(Pipe.arrow(tmp_path / "s.arrow"))) == table.to_pylist()


def test_a_folder_without_rows_is_an_empty_pipe(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", files=1, _data_files=[])
    assert list(Loader(Pipe.stored(folder))) == []


def test_folders_that_are_no_single_data_set_are_refused_with_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "train")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(BadOption, match=r"several data sets \(train, test\): name one of them.*/train"):
        Pipe.stored(tmp_path)
    with pytest.raises(BadOption, match="put them together with concat"):
        Pipe.stored([tmp_path / "train", tmp_path / "train"])
    with pytest.raises(BadOption, match="not a folder of the format 'lance'"):
        Pipe.stored(tmp_path / "train", "lance")
    with pytest.raises(BadOption, match="flatten_indices"):
        Pipe.stored(write(tmp_path / "old", _indices_data_files=[{"filename": "i.arrow"}]))
    with pytest.raises(DamagedFile, match="outside its folder"):
        Pipe.stored(write(tmp_path / "far", _data_files=[{"filename": "../train/data-00000-of-00002.arrow"}]))
    with pytest.raises(DamagedFile, match=r"lacks gone\.arrow"):
        Pipe.stored(write(tmp_path / "gone", _data_files=[{"filename": "gone.arrow"}]))


@pytest.mark.parametrize("target", ["state.json", "data-00000-of-00002.arrow"])
def test_a_mutated_folder_gives_an_error_or_the_right_rows(tmp_path: Path, target: str) -> None:
    """Right rows: but for those whose own bytes were touched. (Arrow has no check sums.)"""
    folder = write(tmp_path / "d")
    whole = (folder / target).read_bytes()
    chance = random.Random(7)
    for _ in range(depth(15, 500)):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (folder / target).write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)
        try:
            found = rows_of(Loader(Pipe.stored(folder)))
        except (HeadraceError, DamagedFile, pa.ArrowException, OSError, UnicodeError, ValueError):
            continue
        if found and found[0].keys() == ROWS[0].keys() and len(found) == len(ROWS):
            assert sum(repr(a) != repr(b) for a, b in zip(found, ROWS, strict=True)) <= 30  # at most three batches


# --- ArrayRecord ------------------------------------------------------------------------------------------------------

RECORDS = [bytes([i % 256]) * (i * 31 % 400) for i in range(300)]


def records(path: Path, group: int, written: list[bytes] = RECORDS) -> Path:
    module = pytest.importorskip("array_record.python.array_record_module", reason="not installed")
    writer = module.ArrayRecordWriter(str(path), f"group_size:{group}")
    for record in written:
        writer.write(record)
    writer.close()
    return path


@pytest.mark.parametrize("group", [1, 7])
def test_array_records_come_in_stored_order_in_any_other_and_go_on(tmp_path: Path, group: int) -> None:
    records(tmp_path / "a.array_record", group, RECORDS[:200])
    records(tmp_path / "b.array_record", group, RECORDS[200:])
    pipe = Pipe.stored(f"{tmp_path}/*.array_record")
    assert list(Loader(pipe)) == RECORDS
    shuffled = list(Loader(pipe.shuffle(), seed=2))
    assert shuffled != RECORDS
    assert sorted(shuffled) == sorted(RECORDS)
    for how in ({"workers": 2}, {"workers": 2, "kind": "thread"}):
        with Loader(pipe.shuffle(), seed=2, **how) as loader:  # type: ignore[arg-type]
            samples = iter(loader)
            first = [next(samples) for _ in range(31)]
            state = json.loads(json.dumps(loader.state_dict()))
        again = Loader(pipe.shuffle(), seed=2)
        again.load_state_dict(state)
        assert first + list(again) == shuffled


def test_a_forked_worker_says_that_the_reader_does_not_survive_it(tmp_path: Path) -> None:
    pipe = Pipe.stored(records(tmp_path / "a.array_record", 1))
    with (
        Loader(pipe, workers=1, start_method="fork") as loader,
        pytest.raises(BadPipe, match="use start_method='server' or 'spawn'"),
    ):
        list(loader)


def test_mutated_array_records_give_an_error_or_the_right_data(tmp_path: Path) -> None:
    path = records(tmp_path / "a.array_record", 3)
    whole = path.read_bytes()
    chance = random.Random(3)
    filled = [at for at in range(0, len(whole), 64) if any(whole[at : at + 64])]  # (most of such a file is padding)
    for _ in range(depth(15, 500)):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3])):
            data[chance.choice(filled) + chance.randrange(64)] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)
        try:
            found = list(Loader(Pipe.stored(path)))
        except DamagedFile:
            continue
        assert found == RECORDS  # it has check sums


@pytest.mark.parametrize("later", [0, 10**9])
def test_a_thread_that_comes_after_array_records_were_replaced_reads_none_of_the_new_ones(
    tmp_path: Path, later: int
) -> None:
    """Every thread has a reader of its own, which opens the file by its name."""
    path, new = records(tmp_path / "a.array_record", 1), records(tmp_path / "new", 1, [b"new"] * len(RECORDS))
    source = Pipe.stored(path).op
    assert source.get(7) == RECORDS[7]  # type: ignore[attr-defined]
    time = path.stat().st_mtime_ns + later
    os.utime(new, ns=(time, time))
    os.replace(new, path)
    with ThreadPoolExecutor(1) as other, pytest.raises(DamagedFile, match="array_record has changed since"):
        other.submit(source.get, 8).result()  # type: ignore[attr-defined]


def test_what_is_not_installed_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "a.array_record").touch()
    (tmp_path / "l.lance" / "_versions").mkdir(parents=True)
    (tmp_path / "l.lance" / "data").mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HeadraceError, match=r"pip install 'headrace\[arrayrecord\]'"):
        Pipe.stored(tmp_path / "a.array_record")
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(HeadraceError, match=r"pip install 'headrace\[lance\]'"):
        Pipe.stored(tmp_path / "l.lance")
