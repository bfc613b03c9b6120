"""Bytes that all ranks of a job read together, counted where files are read: about as many as there are."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.observe.meter import Reads, planned
from headrace.sources.stored import source
from tests.depth import depth
from tests.sources.stored import writers

RANKS = (1, 2, 3, 4, 6, 8, 12, 16)
ROWS = 9600


def stored(folder: Path, form: str) -> tuple[Pipe[Any], int]:
    """Samples of about 100 bytes in twelve files, and their bytes."""
    folder.mkdir()
    text = ["x" * (60 + i % 40) for i in range(ROWS)]
    lots = [range(first, first + ROWS // 12) for first in range(0, ROWS, ROWS // 12)]
    if form == "jsonl":
        for number, lot in enumerate(lots):
            writers.jsonl(folder / f"{number:02}.jsonl", [{"n": i, "text": text[i]} for i in lot])
        return Pipe.stored(f"{folder}/*.jsonl").map(lambda row: row["n"]), _bytes(folder)
    if form == "tar":
        for number, lot in enumerate(lots):
            writers.tar(folder / f"{number:02}.tar", [{".n": str(i).encode(), ".txt": text[i].encode()} for i in lot])
        return Pipe.stored(f"{folder}/*.tar").map(lambda sample: int(sample[".n"])), _bytes(folder)
    rows = [[{"n": i.to_bytes(8, "little"), "s": text[i].encode()} for i in lot] for lot in lots]
    made = writers.mds(folder / "m", {"n": ("int", 8), "s": ("str", None)}, rows)
    return Pipe.stored(made).map(lambda row: row["n"]), _bytes(made)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix != ".index")


def job(make: Callable[[], Pipe[Any]], ranks: int, batch: int, key: Any) -> tuple[list[Any], Reads]:
    """What all ranks receive, in the order of the job, and what they have read of files. Each makes its own pipe."""
    mine, reads = [], Reads()
    for rank in range(ranks):
        with Loader(make().batch(batch), seed=1, world=World(rank=rank, ranks=ranks)) as loader:
            mine.append([x for b in loader for x in key(b)])
            reads = reads.plus(loader.stats().reads)
    return [of[i] for i in range(max(map(len, mine))) for of in mine if i < len(of)], reads


@pytest.mark.parametrize("form", ["jsonl", "tar", "mds"])
def test_all_ranks_together_read_stored_files_once_in_one_order(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "UNIT", 800)  # at least 20 units a part
    pipe, total = stored(tmp_path / "data", form)
    shuffled = pipe.shuffle(parts=48)
    assert shuffled.inputs[0].inputs[0].op.units().count >= 960  # type: ignore[attr-defined]
    orders = []
    for ranks, times in depth([(1, 1), (3, 2), (16, 1)], [(ranks, times) for ranks in RANKS for times in (1, 2)]):
        order, reads = job(lambda: shuffled, ranks, times * (48 // ranks), list)
        assert 0.5 * total < reads.bytes <= 1.1 * total
        assert ROWS <= reads.requests <= ROWS + 100  # (MDS: what the head of a shard says of its columns)
        orders.append(order)
    assert sorted(orders[0]) == list(range(ROWS))
    assert orders[0] != sorted(orders[0])
    assert all(order == orders[0] for order in orders)


pa = pytest.importorskip("pyarrow", reason="not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="not installed")


def parquet(folder: Path, groups: int) -> int:
    """Four files of row groups of ten rows, 50 kB each; their bytes."""
    chance = np.random.default_rng(0)
    vector = pa.list_(pa.field("element", pa.float32(), False), 1250)
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", vector, False)])
    for number in range(4):
        keys = np.arange(groups // 4 * 10) + number * (groups // 4 * 10)
        wide = pa.FixedSizeListArray.from_arrays(chance.random(len(keys) * 1250, np.float32), type=vector)
        pq.write_table(
            pa.table([pa.array(keys), wide], schema=schema), folder / f"{number}.parquet", row_group_size=10,
            write_statistics=False, compression=None, use_dictionary=False,
        )  # fmt: skip
    return _bytes(folder)


def rchar() -> int:
    """Bytes that this process has asked the system for."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_all_ranks_together_read_parquet_once_in_one_order(tmp_path: Path) -> None:
    total = parquet(tmp_path, 960)
    before = planned.reads

    def make() -> Pipe[Any]:
        return Pipe.parquet(tmp_path, memory=total // 2).shuffle(parts=48)

    assert make().explain().count("192 of 960 row groups are open at a time") == 1
    assert planned.reads.opens - before.opens == 4
    first: list[int] | None = None
    for ranks in depth((1, 12), RANKS):
        for batch in depth((240 // ranks,), (48 // ranks, 240 // ranks)):
            began = rchar()
            order, reads = job(make, ranks, batch, lambda b: b["k"].tolist())
            asked = rchar() - began
            first = order if first is None else first
            assert order == first
            assert 0.9 * total < reads.bytes <= 1.1 * total
            assert abs(asked - reads.bytes) < 0.1 * total  # what the system has counted
    assert sorted(first or []) == list(range(9600))


def test_explain_computes_what_other_numbers_of_ranks_read(tmp_path: Path) -> None:
    total = parquet(tmp_path, 96)
    pipe = Pipe.parquet(tmp_path).shuffle(parts=48)
    for ranks in (5, 12, 7):
        indexed = pipe.indexed(1, 0)
        assert indexed is not None
        assert indexed.parts is not None
        _, reads = job(lambda: Pipe.parquet(tmp_path).shuffle(parts=48), ranks, 16, lambda b: b["k"].tolist())
        # Each rank holds in memory what it has open, so only what the order needs is read; beside it, footers.
        assert abs(reads.bytes / total - indexed.parts.reads(ranks)) < 0.15 * indexed.parts.reads(ranks)


def test_worker_processes_tell_what_they_read(tmp_path: Path) -> None:
    path = writers.jsonl(tmp_path / "a.jsonl", [{"n": i} for i in range(100)])
    with Loader(Pipe.stored(path).batch(10), workers=2) as loader:
        assert len(list(loader)) == 10
        assert loader.stats().reads.bytes == os.path.getsize(path) - 100  # without newlines
        assert loader.stats().reads.requests == 100
        assert 1 <= loader.stats().reads.opens <= 2
        assert f"read by this rank: {os.path.getsize(path) - 100} bytes in 100 reads" in loader.explain()


LAYOUTS = {
    "uneven": depth([1, 200, 0, 3, 96], [1, 700, 0, 3, 96]),
    "giant": depth([500], [2000]),
    "one unit": [7],
    "few units": [12, 9],
    "empty": [0, 0, 30, 0],
}


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_uneven_giant_few_and_empty_files_come_once_in_one_order_for_every_number_of_ranks(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with more ranks than units."""
    monkeypatch.setattr(source, "UNIT", 10_000 if layout == "giant" else 800)
    counts = LAYOUTS[layout]
    total = sum(counts)
    for number, first in enumerate(np.cumsum([0, *counts[:-1]]).tolist()):
        lines = [{"n": i, "text": "x" * (i % 90)} for i in range(first, first + counts[number])]
        writers.jsonl(tmp_path / f"{number}.jsonl", lines)
    pipe = Pipe.stored(f"{tmp_path}/*.jsonl").map(lambda row: row["n"]).shuffle(parts=48)
    want, once = job(lambda: pipe, 1, 5, list)
    assert sorted(want) == list(range(total))
    for ranks in depth((16,), RANKS):
        if ranks > total:
            continue
        for batch in (1, 4):
            order, reads = job(lambda: pipe, ranks, batch, list)
            assert sorted(order) == list(range(total))
            whole = total // (ranks * batch) * ranks * batch  # (the last steps are dealt evenly)
            assert order[: max(0, whole - ranks * batch)] == want[: max(0, whole - ranks * batch)]
            assert reads.bytes == once.bytes


def deadly(row: Any) -> int:
    """Ends its worker by SIGKILL at one row, once."""
    number, flag = int(row["n"]), row["flag"]
    if number == row["at"]:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("at", depth([150], [0, 1, 77, 150, 299, 431, 599]))
def test_a_killed_worker_of_a_rank_does_not_change_its_stream_of_parts(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "UNIT", 800)
    path, flag = tmp_path / "a.jsonl", tmp_path / "killed"
    writers.jsonl(path, [{"n": i, "at": at, "flag": str(flag), "text": "x" * (i % 90)} for i in range(600)])
    pipe = Pipe.stored(path).shuffle(parts=12).map(deadly).batch(7)
    flag.touch()
    whole = [list(Loader(pipe, seed=3, world=World(rank=rank, ranks=3))) for rank in range(3)]
    assert sorted(n for rank in whole for batch in rank for n in batch) == list(range(600))
    flag.unlink()
    for rank in range(3):
        with Loader(pipe, seed=3, workers=2, start_method="fork", world=World(rank=rank, ranks=3)) as loader:
            assert list(loader) == whole[rank]
    assert flag.exists()
