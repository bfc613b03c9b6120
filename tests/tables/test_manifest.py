"""Manifests: many files are looked into once by a whole job, and not again at its next start."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.observe.meter import planned
from tests.depth import depth

pa = pytest.importorskip("pyarrow", reason="not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="not installed")

FILES = depth(400, 10_000)


def write(folder: Path, files: int) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"k": range(7), "x": [0.5] * 7}), folder / "0.parquet")
    data = (folder / "0.parquet").read_bytes()
    for number in range(1, files):
        (folder / f"{number}.parquet").write_bytes(data)


def opens(work: Any) -> int:
    before = planned.reads.opens
    work()
    return planned.reads.opens - before


@pytest.mark.timeout(300)
def test_eight_ranks_look_into_every_file_once_and_later_into_the_manifest_only(tmp_path: Path) -> None:
    write(tmp_path / "data", FILES)

    def job() -> None:
        with ThreadPoolExecutor(8) as ranks:
            pipes = list(ranks.map(lambda _: Pipe.parquet(tmp_path / "data", manifest=tmp_path / "m.json"), range(8)))
        assert {tuple(pipe.fingerprint()) for pipe in pipes} == {tuple(pipes[0].fingerprint())}
        assert {pipe.length() for pipe in pipes} == {7 * FILES}

    assert opens(job) <= FILES + 8
    assert opens(job) == 8
    began = time.thread_time()
    Pipe.parquet(tmp_path / "data", manifest=tmp_path / "m.json")
    assert time.thread_time() - began < 1


@pytest.mark.timeout(300)
def test_ranks_without_a_shared_file_system_hand_the_footers_on_through_a_store(tmp_path: Path) -> None:
    distributed = pytest.importorskip("torch.distributed", reason="not installed")
    write(tmp_path / "data", FILES)
    server = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)

    def make(_: int) -> Pipe[Any]:
        store = distributed.TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)
        return Pipe.parquet(tmp_path / "data", manifest=store)

    def job() -> None:
        with ThreadPoolExecutor(8) as ranks:
            pipes = list(ranks.map(make, range(8)))
        assert {tuple(pipe.fingerprint()) for pipe in pipes} == {tuple(pipes[0].fingerprint())}
        assert {pipe.length() for pipe in pipes} == {7 * FILES}

    assert opens(job) == FILES
    assert opens(job) == 0
    (tmp_path / "data/bad.parquet").write_text("this is none")
    with ThreadPoolExecutor(3) as ranks:
        failed = [ranks.submit(make, n).exception() for n in range(3)]
    assert all(isinstance(error, BadOption) and "bad.parquet" in str(error) for error in failed)
    with pytest.raises(BadOption, match="the name of a file or a store"):
        Pipe.parquet(tmp_path / "data", manifest=7)  # type: ignore[arg-type]


def test_only_files_that_have_changed_are_looked_into_again(tmp_path: Path) -> None:
    write(tmp_path / "data", 20)

    def make() -> Pipe[Any]:
        return Pipe.parquet(tmp_path / "data", manifest=tmp_path / "m.json")

    assert opens(make) == 20
    pq.write_table(pa.table({"k": range(100, 109), "x": [0.5] * 9}), tmp_path / "data/3.parquet")
    assert opens(make) == 3  # the manifest, without the lock and with it, and the file
    assert sorted(row["k"] for row in Loader(make())) == sorted([*(list(range(7)) * 19), *range(100, 109)])
    os.unlink(tmp_path / "data/5.parquet")
    assert opens(make) == 1
    assert make().length() == 18 * 7 + 9


@pytest.mark.parametrize("seed", range(depth(10, 500)))
def test_a_damaged_manifest_is_refused(tmp_path: Path, seed: int) -> None:
    write(tmp_path / "data", 3)
    target = tmp_path / "m.json"
    Pipe.parquet(tmp_path / "data", manifest=target)
    whole, chance = target.read_bytes(), random.Random(seed)
    data = bytearray(whole)
    data[chance.randrange(len(data))] = chance.randrange(256)
    target.write_bytes(data if seed % 4 else data[: chance.randrange(len(data))])
    if target.read_bytes() == whole:
        return
    with pytest.raises(BadOption, match="remove it to have it made anew"):
        Pipe.parquet(tmp_path / "data", manifest=target)


def test_a_manifest_of_another_format_or_place_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "data", 2)
    Pipe.parquet(tmp_path / "data", manifest=tmp_path / "m.json")
    with pytest.raises(BadOption, match="not a manifest of arrow files"):
        Pipe.arrow(tmp_path / "data", manifest=tmp_path / "m.json")
    with pytest.raises(BadOption, match="files of this machine"):
        Pipe.parquet(tmp_path / "data", manifest="s3://bucket/m.json")
