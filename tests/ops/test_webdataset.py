from pathlib import Path

import pytest

from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op
from tests.ops.test_load_from_tar import make_tar


def test_neighbours_with_one_name_are_one_sample() -> None:
    samples = [("d/1.jpg", 1), ("d/1.cls", 2), ("readme", 0), ("d/2.seg.png", 3), ("e/2.jpg", 4), ("d.x/2.jpg", 5)]
    assert check_file_op(Pipe.of(samples).webdataset()) == [
        {"__key__": "d/1", ".jpg": 1, ".cls": 2},
        {"__key__": "d/2", ".seg.png": 3},
        {"__key__": "e/2", ".jpg": 4},
        {"__key__": "d.x/2", ".jpg": 5},
    ]


def test_back_slashes_are_slashes() -> None:
    assert list(Pipe.of([("d\\1.jpg", 1), ("d/1.cls", 2)]).webdataset()) == [{"__key__": "d/1", ".jpg": 1, ".cls": 2}]


def test_nothing_gives_nothing() -> None:
    assert list(Pipe.of([("readme", 0)]).webdataset()) == []


def test_two_files_of_one_sample_with_one_ending_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"two files that end in '\.jpg'"):
        list(Pipe.of([("1.jpg", 1), ("1.jpg", 2)]).webdataset())


def test_shards_are_read_archive_by_archive_in_any_number_of_workers(tmp_path: Path) -> None:
    paths = []
    for shard in range(4):
        content = {f"{shard}{i:03d}.{end}": f"{shard}{i}{end}".encode() for i in range(5) for end in ("txt", "cls")}
        paths.append(make_tar(tmp_path / f"s-{shard}.tar", content=content))
    pipe = Pipe.shards(f"{tmp_path}/s-{{0..3}}.tar")
    got = check_file_op(pipe)
    assert len(got) == 20
    assert got[6] == {"__key__": "1001", ".txt": b"11txt", ".cls": b"11cls"}
    with Loader(pipe, workers=3) as loader:
        assert list(loader) == got
    streamed = Pipe.tar(paths).webdataset()
    assert [sample["__key__"] for sample in streamed] == [f"{paths[int(s['__key__'][0])]}/{s['__key__']}" for s in got]
