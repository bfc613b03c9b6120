"""Arrow streams and ArrayRecord files: samples by position; damage is told, never read over."""

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadPipe, HeadraceError
from headrace.sources.bytes import DamagedFile
from tests.depth import depth

pa = pytest.importorskip("pyarrow", reason="not installed")


def test_streams_with_dictionaries_are_read_as_arrow_files_are(tmp_path: Path) -> None:
    table = pa.table({"word": pa.array(["a", "b", None, "a"]).dictionary_encode(), "n": [1, 2, 3, 4]})
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, 2)
    assert list(Loader(Pipe.arrow(tmp_path / "s.arrow"))) == table.to_pylist()


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
