"""Pipes over a bucket: the same samples in the same order as over the same files on a disk, with few requests."""

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.loader import Loader
from headrace.observe.meter import planned
from headrace.pipe.graph import Pipe
from headrace.sources import retry
from headrace.sources.bytes import DamagedFile
from headrace.sources.cache import DiskCache
from headrace.sources.retry import FileChanged
from headrace.tables.stored import chunks
from headrace.tables.stored.cache import Cache
from tests.depth import depth
from tests.sources.faulty import Faulty

pa = pytest.importorskip("pyarrow")
pytest.importorskip("obstore")
import pyarrow.parquet as pq  # noqa: E402

SAMPLES = 600


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a millisecond."""
    for name, value in {"FIRST_PAUSE": 0.001, "LONGEST_PAUSE": 0.002}.items():
        monkeypatch.setattr(retry, name, value)


def tar_bytes(number: int, samples: int, size: int) -> bytes:
    chance = np.random.default_rng(number)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for n in range(samples):
            for ending, content in (("cls", b"%d" % (number * samples + n)), ("bin", chance.bytes(size))):
                info = tarfile.TarInfo(f"{number:02}-{n:05}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def parquet_bytes(number: int, rows: int) -> bytes:
    chance = np.random.default_rng(number)
    table = pa.table({
        "n": np.arange(number * rows, (number + 1) * rows),
        **{f"c{i}": chance.random(rows) for i in range(8)},
        "text": [f"text {number} {n}" for n in range(rows)],
    })  # fmt: skip
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=rows // 4, compression="none")
    return out.getvalue()


def arrow_bytes(number: int, rows: int) -> bytes:
    table = pa.table({"n": np.arange(number * rows, (number + 1) * rows)})
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, rows // 4)
    return out.getvalue()


def lines_bytes(number: int, rows: int) -> bytes:
    return b"".join(json.dumps({"n": number * rows + n, "text": "x" * 50}).encode() + b"\n" for n in range(rows))


def tokens_bytes(ids: list[list[int]]) -> tuple[bytes, bytes]:
    sizes = np.array([len(one) for one in ids], "<i4")
    offsets = (np.cumsum(sizes) - sizes).astype("<i8") * 2
    head = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + bytes([8]) + len(ids).to_bytes(8, "little")
    tail = np.arange(len(ids) + 1, dtype="<i8").tobytes()
    index = head + (len(ids) + 1).to_bytes(8, "little") + sizes.tobytes() + offsets.tobytes() + tail
    return np.concatenate(ids).astype("<u2").tobytes(), index


PER_FILE = SAMPLES // 3
FILES: dict[str, dict[str, bytes]] = {
    "tar": {f"{n}.tar": tar_bytes(n, PER_FILE, 2000) for n in range(3)},
    "parquet": {f"{n}.parquet": parquet_bytes(n, PER_FILE) for n in range(3)},
    "arrow": {f"{n}.arrow": arrow_bytes(n, PER_FILE) for n in range(3)},
    "jsonl": {f"{n}.jsonl": lines_bytes(n, PER_FILE) for n in range(3)},
    "megatron": dict(zip(("a.bin", "a.idx"), tokens_bytes([[n, n] for n in range(SAMPLES)]), strict=True)),
}
PIPES: dict[str, Callable[[str, Path], Pipe[Any]]] = {
    "tar": lambda root, index: Pipe.stored(f"{root}/*.tar", index=index).map(label),
    "parquet": lambda root, index: Pipe.parquet(f"{root}/*.parquet").map(label),
    "arrow": lambda root, index: Pipe.arrow(f"{root}/*.arrow").map(label),
    "jsonl": lambda root, index: Pipe.stored(f"{root}/*.jsonl", index=index).map(label),
    "megatron": lambda root, index: Pipe.stored(f"{root}/a.bin", index=index).map(label),
}
STREAMS: dict[str, Callable[[str], Pipe[Any]]] = {
    "tar": lambda root: Pipe.shards([f"{root}/{n}.tar" for n in range(3)]).map(label),
    "jsonl": lambda root: Pipe.jsonl([f"{root}/{n}.jsonl" for n in range(3)]).map(label),
    "tar ": lambda root: Pipe.files(f"{root}/*.tar").open_files("rb").load_from_tar().map(member),
}


def label(sample: Any) -> int:
    """The number of a sample."""
    if isinstance(sample, np.ndarray):
        return int(sample[0])
    return int(sample[".cls"] if ".cls" in sample else sample["n"])


def member(sample: Any) -> str:
    path, stream = sample
    return f"{path[-12:]} {len(stream.read())}"


@pytest.fixture(params=FILES)
def kind(request: pytest.FixtureRequest, bucket: Faulty, tmp_path: Path) -> str:
    """A kind of files, on the disk and in the bucket, under a name that no other test uses."""
    kind: str = request.param
    (tmp_path / "data").mkdir()
    for name, content in FILES[kind].items():
        (tmp_path / "data" / name).write_bytes(content)
        bucket.files[f"bkt/{tmp_path.name}/{name}"] = content
    return kind


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"s3://bkt/{tmp_path.name}"


def shuffled(pipe: Pipe[Any], **options: Any) -> list[Any]:
    with Loader(pipe.shuffle().batch(8), seed=5, **options) as loader:
        return [sample for batch in loader for sample in batch]


@pytest.mark.parametrize(
    "how", [{}, {"workers": 2}, {"workers": 2, "kind": "thread"}], ids=["inline", "processes", "threads"]
)
def test_a_bucket_gives_what_a_disk_gives_and_each_byte_once(
    kind: str, how: dict[str, Any], bucket: Faulty, root: str, tmp_path: Path
) -> None:
    want = shuffled(PIPES[kind](str(tmp_path / "data"), tmp_path / "local"))
    pipe = PIPES[kind](root, tmp_path / "index")
    assert sorted(want) == list(range(SAMPLES))
    assert len(pipe) == SAMPLES  # (what is to be known of the files is known now)
    bucket.reset()
    with Loader(pipe.shuffle().batch(8), seed=5, **how) as loader:
        assert [sample for batch in loader for sample in batch] == want
        assert loader.stats().reads.bytes <= 1.1 * bucket.sent + 1000
    footers = 2 * sum(min(len(data), 1 << 16) for data in FILES[kind].values()) if kind == "parquet" else 0
    assert bucket.sent <= 1.1 * sum(len(data) for data in FILES[kind].values()) + footers  # (each process reads these)
    assert len([path for path, _ in bucket.asked if "list-type" not in path]) <= 60


def test_it_resumes_anywhere_without_reading_what_came_before(kind: str, root: str, tmp_path: Path) -> None:
    pipe = PIPES[kind](root, tmp_path / "index").shuffle().batch(10)
    with Loader(pipe, seed=5) as loader:
        whole = list(loader)
    with Loader(pipe, seed=5) as loader:
        rest = iter(loader)
        for _ in range(40):
            next(rest)
        place = loader.state_dict()
    with Loader(pipe, seed=5) as loader:
        loader.load_state_dict(place)
        assert list(loader) == whole[40:]


@pytest.mark.parametrize("name", STREAMS)
def test_streams_over_a_bucket_are_those_of_a_disk(name: str, bucket: Faulty, tmp_path: Path) -> None:
    for file, content in FILES[name.strip()].items():
        (tmp_path / file).write_bytes(content)
        bucket.files[f"bkt/{file}"] = content
    want = list(STREAMS[name](str(tmp_path)))
    bucket.fail = lambda number, path: ("reset", 50_000) if number % 5 == 1 and "list-type" not in path else None
    assert list(STREAMS[name]("s3://bkt")) == want


@pytest.mark.parametrize("fault", [503, ("reset", 10), ("cut", 10), ("drop",)], ids=str)
def test_faults_that_pass_change_nothing(kind: str, fault: Any, bucket: Faulty, root: str, tmp_path: Path) -> None:
    want = shuffled(PIPES[kind](str(tmp_path / "data"), tmp_path / "local"))
    before = planned.reads.retries
    bucket.fail = lambda number, path: fault if number % 3 == 1 and "list-type" not in path else None
    with Loader(PIPES[kind](root, tmp_path / "index").shuffle().batch(8), seed=5) as loader:
        assert [sample for batch in loader for sample in batch] == want
        assert loader.stats().reads.retries + planned.reads.retries > before


def test_an_object_that_changes_during_a_job_is_an_error_that_names_it(
    kind: str, bucket: Faulty, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = PIPES[kind](root, tmp_path / "index")
    assert len(pipe) == SAMPLES
    monkeypatch.setattr(chunks, "_chunks", Cache(0))  # (all of a small Arrow file was read to count its rows)
    bucket.fail = lambda number, path: ("changed",)
    with pytest.raises((FileChanged, DamagedFile), match=r"s3://bkt/\S+ (has )?changed"):
        shuffled(pipe)


def test_small_objects_are_opened_before_they_are_asked_for(bucket: Faulty) -> None:
    bucket.files = {f"bkt/{n:03}": os.urandom(1000) for n in range(60)}
    pipe = Pipe.files([f"s3://{name}" for name in bucket.files]).open_files("rb").read_from_stream()
    assert [data for _, data in pipe] == list(bucket.files.values())
    assert len(bucket.asked) == 60
    bucket.reset()
    with Loader(pipe.shuffle(), seed=3) as loader:
        assert sorted(data for _, data in loader) == sorted(bucket.files.values())
    assert len(bucket.asked) == 60


def test_two_columns_of_many_send_little_more_than_their_bytes(bucket: Faulty) -> None:
    bucket.files = {"bkt/x.parquet": parquet_bytes(0, depth(40_000, 200_000))}
    pipe = Pipe.parquet("s3://bkt/x.parquet", columns=["c1", "c6"])
    with Loader(pipe.batch(1000)) as loader:
        rows = sum(len(batch["c1"]) for batch in loader)
    assert bucket.sent <= 1.25 * rows * 16 + 100_000  # (and the footer)


def test_a_filter_sends_little_more_than_what_it_keeps(bucket: Faulty) -> None:
    rows = depth(40_000, 200_000)
    bucket.files = {"bkt/x.parquet": parquet_bytes(0, rows)}
    import pyarrow.compute as pc

    pipe = Pipe.parquet("s3://bkt/x.parquet").filter(pc.field("n") < rows // 4)
    with Loader(pipe.batch(1000)) as loader:
        assert sum(len(batch["n"]) for batch in loader) == rows // 4
    needed = len(bucket.files["bkt/x.parquet"]) / 4 + 8 * rows
    assert bucket.sent <= 1.25 * needed + 100_000


def test_with_a_disk_cache_a_job_of_several_ranks_fetches_each_object_once(bucket: Faulty, tmp_path: Path) -> None:
    for name, content in FILES["tar"].items():
        bucket.files[f"bkt/{name}"] = content
    cache = DiskCache(str(tmp_path / "cache"), 1 << 30)
    for _ in range(4):
        pipe = Pipe.shards([f"s3://bkt/{n}.tar" for n in range(3)], cache=cache)
        assert len(list(pipe)) == SAMPLES
    assert bucket.sent <= 1.05 * sum(len(data) for data in FILES["tar"].values())


def test_names_in_a_bucket_are_found_by_pattern_and_folder(s3: Any, tmp_path: Path) -> None:
    for key in ("d/a1.jsonl", "d/a2.jsonl", "d/b.txt", "d/e/a3.jsonl"):
        s3.put_object(Bucket="bkt", Key=key, Body=b'{"n": 1}\n')
    assert list(Pipe.files("s3://bkt/d/a*.jsonl")) == ["s3://bkt/d/a1.jsonl", "s3://bkt/d/a2.jsonl"]
    assert len(list(Pipe.files("s3://bkt/d/**/*.jsonl"))) == 3
    assert len(list(Pipe.files("s3://bkt/d/"))) == 4
    assert list(Pipe.files("s3://bkt/d/a[!1].jsonl")) == ["s3://bkt/d/a2.jsonl"]
    assert [row["n"] for row in Pipe.stored("s3://bkt/d/a{1..2}.jsonl", index=tmp_path)] == [1, 1]
    with pytest.raises(FileNotFoundError, match="no file fits"):
        Pipe.files("s3://bkt/none/*")
