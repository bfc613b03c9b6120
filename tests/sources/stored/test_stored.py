"""Stored formats: every sample once, in any order, whatever the file looks like; damage is told, never read over."""

import bz2
import errno
import gzip
import json
import lzma
import os
import pickle
import random
import re
import signal
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.errors import BadOption, SnapshotRefused
from headrace.sources.bytes import DamagedFile
from headrace.sources.stored import compressed, formats, jsonl, source
from headrace.sources.stored import index as kept
from headrace.sources.stored.format import Spans
from headrace.sources.stored.jsonl import _newlines
from tests.conftest import RunScript
from tests.depth import depth
from tests.sources.stored import writers

SAMPLES = [{".cls": str(i).encode(), ".txt": b"x" * (i * 37 % 1500)} for i in range(60)]
ROWS = [{"n": i, "text": "é\u2028" * (i % 5)} for i in range(60)]


def make(folder: Path, form: str) -> tuple[Path, list[Any]]:
    """A file of a format, and its samples."""
    if form == "jsonl":
        return writers.jsonl(folder / "a.jsonl", ROWS), ROWS
    if form == "tar":
        expected = [{"__key__": f"d/{i:04}", **sample} for i, sample in enumerate(SAMPLES)]
        return writers.tar(folder / "a.tar", SAMPLES), expected
    if form == "tfrecord":
        return writers.tfrecord(folder / "a.tfrecord", [b""] * 60), [{}] * 60
    if form == "mds":
        rows = [{"x": struct_int(i), "s": b"t" * i} for i in range(60)]
        made = writers.mds(folder / "m", {"x": ("int", 8), "s": ("str", None)}, [rows[:25], [], rows[25:]])
        return made, [{"s": "t" * i, "x": i} for i in range(60)]
    tokens = [np.arange(i % 7, dtype=np.uint16) for i in range(60)]
    return writers.megatron(folder / "a.bin", tokens, 8), [t.tolist() for t in tokens]


def struct_int(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def plain(sample: Any) -> Any:
    return sample.tolist() if isinstance(sample, np.ndarray) else sample


FORMS = ["jsonl", "mds", "megatron", "tar", "tfrecord"]


@pytest.mark.parametrize("form", FORMS)
def test_every_sample_comes_once_in_stored_order_and_in_any_other(tmp_path: Path, form: str) -> None:
    path, expected = make(tmp_path, form)
    pipe = Pipe.stored(path)
    assert [plain(s) for s in Loader(pipe)] == expected
    shuffled = [plain(s) for s in Loader(pipe.shuffle())]
    assert sorted(map(repr, shuffled)) == sorted(map(repr, expected))
    assert form == "tfrecord" or shuffled != expected


@pytest.mark.parametrize("form", FORMS)
def test_workers_give_the_same_stream_and_a_snapshot_goes_on_in_it(tmp_path: Path, form: str) -> None:
    path, _ = make(tmp_path, form)
    pipe = Pipe.stored(path).shuffle().map(plain)
    whole = list(Loader(pipe, seed=3))
    sent = pickle.loads(pickle.dumps(pipe))  # as to workers that are not forked
    with Loader(sent, seed=3, workers=2, start_method="fork") as loader:
        batches = iter(loader)
        first = [next(batches) for _ in range(17)]
        state = json.loads(json.dumps(loader.state_dict()))
    again = Loader(Pipe.stored(path).shuffle().map(plain), seed=3)
    again.load_state_dict(state)
    assert first + list(again) == whole


@pytest.mark.parametrize("lengths", [[8, 8, 0, 0], [0, 0], [0, 3, 0], [16]])
def test_empty_sequences_at_the_end_of_a_file_have_their_place_in_an_order_of_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: list[int]
) -> None:
    monkeypatch.setattr(source, "UNIT", 32)  # (of which a file may have exactly some, or none)
    source._catalog.cache_clear()
    files = [[7], lengths, [5, 5], lengths]
    paths = [
        writers.megatron(tmp_path / f"{i}.bin", [np.zeros(n, np.uint16) for n in each], 8)
        for i, each in enumerate(files)
    ]
    pipe = Pipe.stored(paths).shuffle(parts=2)
    assert sorted(map(len, Loader(pipe))) == sorted(n for each in files for n in each)


@pytest.mark.parametrize(
    ("kind", "long"), [(tarfile.PAX_FORMAT, False), (tarfile.GNU_FORMAT, True), (tarfile.USTAR_FORMAT, False)]
)
def test_tar_headers_of_every_kind_are_walked_through(tmp_path: Path, kind: int, long: bool) -> None:
    path = writers.tar(tmp_path / "a.tar", SAMPLES, kind, long)
    found = list(Loader(Pipe.stored(path)))
    assert [s[".txt"] for s in found] == [s[".txt"] for s in SAMPLES]
    assert list(Loader(Pipe.shards(path))) == found


def test_an_index_takes_sixteen_bytes_a_sample_and_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = make(tmp_path, "jsonl")
    Pipe.stored(path).length()
    made = tmp_path / "a.jsonl.index"
    assert made.stat().st_size == kept.HEAD + 16 * len(expected)
    monkeypatch.setattr(kept, "_scan", None)  # would be an error if it were called
    with jsonl.JsonLines().open(str(path)) as file:
        assert len(kept.spans_in(file, jsonl.JsonLines(), None).starts) == len(expected)
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "a.jsonl.index"]


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path, _ = make(tmp_path, "jsonl")
    pipe = Pipe.stored(path)
    assert pipe.length() == 60
    path.write_bytes(path.read_bytes() + b"1\n")
    with pytest.raises(DamagedFile, match="has changed since its index was made"):
        Pipe.stored(path).length()
    with pytest.raises(DamagedFile, match="has changed since the pipe was made"):
        list(Loader(pipe))


def test_indices_may_lie_elsewhere(tmp_path: Path) -> None:
    path, expected = make(tmp_path, "jsonl")
    elsewhere = tmp_path / "kept"
    assert list(Loader(Pipe.stored(path, index=elsewhere))) == expected
    assert len(os.listdir(elsewhere)) == 1
    assert not (tmp_path / "a.jsonl.index").exists()


def test_an_index_elsewhere_may_be_of_a_file_with_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*("é" * 60 for _ in range(3)))
    pipes = []
    for name in ("a", "b"):
        (deep / name).mkdir(parents=True)
        path = writers.jsonl(deep / name / "x.jsonl", [name])
        pipes.append(Pipe.stored(path, index=tmp_path / "kept"))
    assert [list(Loader(pipe)) for pipe in pipes] == [["a"], ["b"]]
    assert len(os.listdir(tmp_path / "kept")) == 2


def test_a_snapshot_of_other_files_is_refused(tmp_path: Path) -> None:
    state = Loader(Pipe.stored(writers.jsonl(tmp_path / "a.jsonl", ROWS))).state_dict()
    other = Loader(Pipe.stored(writers.jsonl(tmp_path / "b.jsonl", ROWS[:-1])))
    with pytest.raises(SnapshotRefused):
        other.load_state_dict(state)


@pytest.mark.parametrize("writes", [23, 24, 25])  # behind the head, in the middle of what it will count
def test_a_scan_that_was_killed_goes_on(tmp_path: Path, run_script: RunScript, writes: int) -> None:
    path = writers.jsonl(tmp_path / "a.jsonl", list(range(5000)))
    program = """
        import os, signal, sys
        from headrace.sources.stored import index, jsonl
        jsonl.PIECE, index.SAVE_EVERY = 1000, 4000
        write, left = index._write_at, [int(sys.argv[2])]
        def dying(*given):
            write(*given)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        index._write_at = dying
        with jsonl.JsonLines().open(sys.argv[1]) as file:
            print(len(index.spans_in(file, jsonl.JsonLines(), None).starts))
    """
    assert run_script(program, path, writes).returncode == -signal.SIGKILL
    before = kept._parsed_header((tmp_path / "a.jsonl.index").read_bytes()[: kept.HEAD], "it").upto
    assert 0 < before < path.stat().st_size
    done = run_script(program, path, 10**6)
    assert (done.returncode, done.stdout) == (0, "5000\n"), done.stderr
    assert list(Loader(Pipe.stored(path))) == list(range(5000))


@pytest.mark.parametrize("form", FORMS)
def test_a_mutated_file_gives_an_error_or_the_right_data(tmp_path: Path, form: str) -> None:
    """Right data: samples whose own bytes were not touched are what they were; nothing hangs or crashes."""
    path, expected = make(tmp_path, form)
    target = path / "shard.00000.mds" if form == "mds" else path
    whole = target.read_bytes()
    rng = random.Random(5)
    for _ in range(depth(25, 500)):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = rng.random() < 0.3
        target.write_bytes(data[: rng.randrange(len(data))] if cut else data)
        for left in tmp_path.glob("*.index"):
            left.unlink()
        try:
            found = [plain(s) for s in Loader(Pipe.stored(path))]
        except (DamagedFile, ValueError, KeyError, RuntimeError, BadOption, TypeError, IndexError, UnicodeError):
            continue
        if form == "tfrecord":  # it has check sums
            assert found == expected[: len(found)]
        if len(found) == len(expected):
            assert sum(a != b for a, b in zip(found, expected, strict=True)) <= 6  # three bytes touch few samples


@pytest.mark.parametrize("form", ["jsonl", "tar", "tfrecord"])
def test_a_mutated_index_is_refused_or_right(tmp_path: Path, form: str) -> None:
    path, expected = make(tmp_path, form)
    Pipe.stored(path).length()
    target = path.with_name(path.name + ".index")
    whole, rng = target.read_bytes(), random.Random(8)
    for _ in range(depth(25, 500)):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        target.write_bytes(data if rng.random() < 0.8 else data[: rng.randrange(len(data))])
        source._catalog.cache_clear()
        try:
            found = list(Loader(Pipe.stored(path)))
        except DamagedFile:
            continue
        assert found == expected


def test_a_span_that_still_lies_in_the_file_is_not_believed(tmp_path: Path) -> None:
    path = writers.jsonl(tmp_path / "a.jsonl", [1234, 5678])
    Pipe.stored(path).length()
    target = tmp_path / "a.jsonl.index"
    data = bytearray(target.read_bytes())
    data[kept.HEAD + 8] = 2  # the first line would be 12
    target.write_bytes(data)
    source._catalog.cache_clear()
    with pytest.raises(DamagedFile, match="check sum differs"):
        Pipe.stored(path).length()


@pytest.mark.parametrize("name", ["a.jsonl", "a.tar"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_is_refused_with_what_to_do_by_its_name_or_its_content(
    tmp_path: Path, pack: Callable[[bytes], bytes], name: str
) -> None:
    (tmp_path / name).write_bytes(pack(b"1\n"))
    with pytest.raises(DamagedFile, match=r"is compressed, .* decompress it once .* Pipe\.shards"):
        Pipe.stored(tmp_path / name).length()
    for ending in compressed.ENDINGS:
        (tmp_path / f"{name}{ending}").touch()
        with pytest.raises(DamagedFile, match=rf"{name}{ending} is compressed"):
            Pipe.stored(tmp_path / f"{name}{ending}")


def test_a_shard_of_mds_that_is_there_in_its_compressed_form_only_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path, expected = make(tmp_path, "mds")
    listed = json.loads((path / "index.json").read_text())
    for shard in listed["shards"]:
        shard["zip_data"] = {"basename": f"{shard['raw_data']['basename']}.zstd"}
    (path / "index.json").write_text(json.dumps(listed))
    assert list(Loader(Pipe.stored(path))) == expected
    (path / "shard.00001.mds").rename(path / "shard.00001.mds.zstd")
    with pytest.raises(
        BadOption, match=r"shard\.00001\.mds\.zstd is compressed: decompress it to .*shard\.00001\.mds$"
    ):
        Pipe.stored(path)


def test_formats_that_their_own_library_reads_are_refused_with_how(tmp_path: Path) -> None:
    for folder, name, text in (("d", "state.json", "{}"), ("s", "dataset_dict.json", "{}"), ("l", "index.json", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text or '{"chunks": [], "config": {}}')
    (tmp_path / "a.bag").touch()
    for path, format, how in (
        (tmp_path / "a.bag", None, "Pipe.of(bagz.Reader"),
        (str(tmp_path / "*.bag"), None, "Pipe.of(bagz.Reader"),
        (tmp_path / "d", None, "Pipe.of(datasets.load_from_disk"),
        ([tmp_path / "s"], None, "Pipe.of(datasets.load_from_disk"),
        (tmp_path / "l", None, "litdata.StreamingDataset"),
        (tmp_path / "anything", "litdata", "litdata.StreamingDataset"),
    ):
        with pytest.raises(BadOption, match=f"is read by its own library; write .*{re.escape(how)}"):
            Pipe.stored(path, format)


def test_an_index_of_an_older_version_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, expected = make(tmp_path, "jsonl")
    with monkeypatch.context() as before:
        before.setattr(kept, "VERSION", kept.VERSION - 1)
        before.setattr(jsonl.JsonLines, "find", lambda self, file, start: iter([Spans.of([0], [2])]))
        assert Pipe.stored(path).length() == 1
    source._catalog.cache_clear()
    with caplog.at_level("INFO", "headrace"):
        assert list(Loader(Pipe.stored(path))) == expected
    assert f"of version {kept.VERSION - 1}" in caplog.text
    monkeypatch.setattr(kept, "VERSION", kept.VERSION - 1)  # (and one that is newer is refused)
    source._catalog.cache_clear()
    with pytest.raises(DamagedFile, match=rf"an index of version {kept.VERSION + 1} .* not of version {kept.VERSION}"):
        Pipe.stored(path).length()


def test_a_tar_without_its_end_is_told_and_one_that_is_cut_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = writers.tar(tmp_path / "a.tar", SAMPLES[:3], tarfile.USTAR_FORMAT)
    whole = path.read_bytes()
    end = whole.rstrip(b"\0").__len__()
    border = -(-end // 512) * 512
    path.write_bytes(whole[:border])
    assert Pipe.stored(path).length() == 3
    assert "no end-of-archive mark" in caplog.text
    for cut, message in ((border - 512, "is cut off at byte"), (border + 100, "in the middle of a header")):
        other = tmp_path / f"{cut}.tar"
        other.write_bytes(whole[:cut])
        with pytest.raises(DamagedFile, match=message):
            Pipe.stored(other).length()


def test_a_header_of_zeros_in_the_middle_is_an_error_and_a_second_archive_behind_the_end_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = writers.tar(tmp_path / "whole.tar", SAMPLES[:5], tarfile.USTAR_FORMAT).read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as archive:
        second = archive.getmembers()[4].offset
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(whole[:second] + bytes(512) + whole[second + 512 :])
    with pytest.raises(DamagedFile, match=f"byte {second}: a header of zeros, and more after it"):
        Pipe.stored(damaged).length()
    joined = tmp_path / "joined.tar"
    joined.write_bytes(whole + whole)
    assert Pipe.stored(joined).length() == 5
    assert "holds more after its end-of-archive" in caplog.text


def test_pickles_are_refused_unless_the_files_are_trusted(tmp_path: Path) -> None:
    import pickle

    path = writers.mds(tmp_path / "m", {"p": ("pkl", None)}, [[{"p": pickle.dumps({1, 2})}]])
    with pytest.raises(BadOption, match="say trust=True"):
        list(Loader(Pipe.stored(path)))
    assert list(Loader(Pipe.stored(path, trust=True))) == [{"p": {1, 2}}]


def test_arrays_of_mds_are_read_as_they_were_written(tmp_path: Path) -> None:
    columns = {
        "a": ("ndarray", None),
        "b": ("ndarray:int16", None),
        "c": ("ndarray:float32:2,2", 16),
        "d": ("float16", 2),
    }
    square = np.arange(4, dtype="<f4").reshape(2, 2)
    row = {
        "a": bytes.fromhex("2104020000000001000000"),
        "b": bytes([(2 << 2) | 0, 1, 2]) + np.array([[7, 8]], "<i2").tobytes(),
        "c": square.tobytes(),
        "d": np.float16(0.5).tobytes(),
    }
    path = writers.mds(tmp_path / "m", columns, [[row]])
    (found,) = Loader(Pipe.stored(path))
    assert (found["a"].dtype, found["a"].tolist()) == (np.int32, [0, 1])
    assert (found["b"].dtype, found["b"].tolist()) == (np.int16, [[7, 8]])
    assert (found["c"] == square).all()
    assert (type(found["d"]), found["d"]) == (np.float16, 0.5)


def test_units_end_where_files_end_and_are_not_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "UNIT", 500)
    first, second = writers.jsonl(tmp_path / "a.jsonl", ROWS), writers.jsonl(tmp_path / "b.jsonl", ROWS[:7])
    made = formats.stored([first, second], None, None, False)
    ends = made.units().ends.tolist()
    assert ends == sorted(set(ends))
    assert {60, 67} <= set(ends)
    assert len(ends) > 4
    assert made.units().total == first.stat().st_size + second.stat().st_size


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    path, _ = make(tmp_path, "jsonl")
    with pytest.raises(BadOption, match=r"did you mean 'jsonl'\?"):
        Pipe.stored(path, "json")
    other = tmp_path / "a.xyz"
    other.touch()
    with pytest.raises(BadOption, match="does not say its format"):
        Pipe.stored(other)
    with pytest.raises(BadOption, match="opens no other"):
        Pipe.stored("s3://bucket/a.array_record")
    with pytest.raises((BadOption, FileNotFoundError)):
        Pipe.stored(tmp_path / "nothing.jsonl")


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform == "linux", reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    path, _ = make(tmp_path, "jsonl")
    tmp_path.chmod(0o500)
    with pytest.raises(BadOption, match="give index="):
        Pipe.stored(path).length()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_file_system_that_is_only_read_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "not here")

    path, _ = make(tmp_path, "jsonl")
    monkeypatch.setattr(kept.lock, "hold", refuse)
    with pytest.raises(BadOption, match=r"not here.*give index="):
        Pipe.stored(path).length()
    (tmp_path / ("l" * 249 + ".jsonl")).touch()
    with pytest.raises(BadOption, match=r"too long.*give index="):
        Pipe.stored(tmp_path / ("l" * 249 + ".jsonl")).length()


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(0, 9))
def test_newlines_are_found_wherever_they_stand(lengths: list[int], rest: int) -> None:
    text = b"".join(b"x" * (length - 1) + b"\n" for length in lengths) + b"x" * rest
    letters = np.frombuffer(text, np.uint8)
    assert _newlines(letters, np.empty(len(letters), bool)).tolist() == [
        place for place, letter in enumerate(text) if letter == 10
    ]
