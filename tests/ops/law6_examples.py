"""A small pipe for every op, on which law 6 is checked, and the ops that are checked elsewhere, with the reason.

The example of a new op stands beside its tests, as `EXAMPLES` in `tests/ops/test_<name>.py` (or in `tests/sources/`,
`tests/tables/`); `examples()` finds it there. A builder gets `of` (makes a pipe of a list: with random access, or as a
stream) and `at` (a folder of files, and a web server with the text files).
"""

import bz2
import copy
import gzip
import hashlib
import importlib
import json
import lzma
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Pipe
from headrace.ops.archives.webdataset import LoadShards
from headrace.ops.branch.fork import Classify, Column, Fork
from headrace.ops.branch.mux import SampleMux
from headrace.ops.order.sharding import Shard
from headrace.ops.shape.bounded import BoundedBatch, BoundedConcat, BoundedZip
from headrace.ops.shape.same import Same
from headrace.sources.huggingface import HuggingFace
from headrace.sources.wrapped import Sampled, WrappedIterable, WrappedSequence
from headrace.tables.ops.batch import AsColumns, ColumnBatch
from headrace.tables.ops.select import Rename, Select
from tests.ops.test_load_from_tar import make_tar
from tests.ops.test_load_from_tfrecord import example, framed

Of = Callable[[list[Any]], Pipe[Any]]
TEXT = b"a,b\n1,x\n2,y\n\n3,z\n"
NUMBERS = list(range(13))
ROWS = [(i, i * i % 7, f"t{i}") for i in range(9)]
DICTS = [{"a": i, "b": {"c": i + 1}} for i in range(9)]
FLAT = [{"k": i, "x": i / 2} for i in range(9)]
WORDS = ["x" * (i % 5 + 1) for i in range(11)]
TABLE: dict[str, Any] = {"k": np.arange(9), "x": np.arange(9) / 2}


def stream(data: list[Any]) -> Pipe[Any]:
    return Pipe.of(lambda: iter(copy.deepcopy(data)))


@dataclass(frozen=True)
class At:
    """Where the files of the examples are."""

    folder: Path
    url: str = ""

    def make(self) -> None:
        """Write the files."""
        folder = self.folder
        for name in ("0.txt", "1.txt"):
            (folder / name).write_bytes(TEXT)
            (folder / f"{name}.gz").write_bytes(gzip.compress(TEXT))
            (folder / f"{name}.bz2").write_bytes(bz2.compress(TEXT))
            (folder / f"{name}.xz").write_bytes(lzma.compress(TEXT))
            make_tar(folder / f"{name}.tar", content={"a.cls": b"1", "a.txt": b"one", "b.cls": b"2", "b.txt": b"two"})
            with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
                archive.writestr("in/a", "one")
                archive.writestr("b", "two")
            (folder / f"{name}.json").write_text(json.dumps({"a": [1, name]}))
            (folder / f"{name}.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
            (folder / f"{name}.tfrecord").write_bytes(b"".join(framed(example({"i": [i]})) for i in range(3)))

    def paths(self, ending: str = "") -> list[str]:
        return [f"{self.folder}/{number}.txt{ending}" for number in (0, 1)]

    def urls(self) -> list[str]:
        return [f"{self.url}/{number}.txt" for number in (0, 1)]

    def parquet(self) -> list[str]:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        for path in (paths := self.paths(".parquet")):
            pq.write_table(pa.table({"i": list(range(7)), "s": [f"s{i}" for i in range(7)]}), path, row_group_size=3)
        return paths

    def rar(self) -> list[str]:
        pytest.importorskip("rarfile")
        from tests.ops.test_load_from_rar import make_rar

        return [make_rar(Path(path), {"a.txt": b"first", "dir/b.bin": bytes(9)}) for path in self.paths(".rar")]

    def hub(self) -> tuple[tuple[str, Any], ...]:
        """Options for files that are read as those of the hub are, without a network."""
        pytest.importorskip("datasets")
        return (("cache_dir", f"{self.folder}/cache"), ("data_files", self.paths(".jsonl")), ("split", "train"))


class Target:
    """Names of files in a folder, by what they are made of."""

    def __init__(self, at: At) -> None:
        self.folder = str(at.folder)

    def __call__(self, name: Any) -> str:
        return f"{self.folder}/made/{name}"


def opened(of: Of, at: At, ending: str = "", mode: str = "rb") -> Pipe[Any]:
    return of(at.paths(ending)).open_files(mode)


def field(name: str) -> Any:
    return pytest.importorskip("pyarrow.compute").field(name)


def parity(x: int) -> int:
    return x % 2


def is_small(x: int) -> bool:
    return x < 7


def few(x: int) -> list[int]:
    return [x] * (x % 3)


def same(x: Any) -> Any:
    return x


def add(a: int, b: int) -> int:
    return a + b


def double(columns: dict[str, Any]) -> dict[str, Any]:
    return {"k": columns["k"] * 2}


def pixels(word: str) -> Any:
    return np.arange(8 * 10 * 3, dtype=np.uint8).reshape(8, 10, 3) * np.uint8(len(word))


def content(name: Any) -> tuple[Any, bytes]:
    return name, str(name).encode()


def pin(sample: Any, device: Any) -> Any:
    return ("pinned", sample)


async def slow(x: int) -> int:
    return 2 * x


def branches(pipes: list[Pipe[Any]]) -> Pipe[Any]:
    first, *rest = pipes
    return first.zip_longest(*rest)


HASHES = {"sha256": hashlib.sha256(TEXT).hexdigest()}

EXAMPLES: dict[str, Callable[[Of, At], Pipe[Any]]] = {
    # --- ops on samples in memory
    "AddIndex": lambda of, at: of(DICTS).add_index(),
    "AsyncMap": lambda of, at: of(NUMBERS).async_map_batches(slow, 4),
    "Batch": lambda of, at: of(NUMBERS).batch(4),
    "BoundedBatch": lambda of, at: of(NUMBERS).then(BoundedBatch(4)),
    "BoundedConcat": lambda of, at: of(NUMBERS).then(BoundedConcat(), of(ROWS)),
    "BoundedZip": lambda of, at: of(NUMBERS).then(BoundedZip(), of(ROWS)),
    "Classify": lambda of, at: of(NUMBERS).then(Classify(parity, 2)),
    "Collate": lambda of, at: of(NUMBERS).batch(4).collate(),
    "Column": lambda of, at: of(ROWS).then(Column(2)),
    "Concat": lambda of, at: of(NUMBERS).concat(of(ROWS)),
    "Cycle": lambda of, at: of(NUMBERS).shuffle(window=4).cycle(3),
    "DemuxTap": lambda of, at: branches(of(NUMBERS).demux(2, parity)),
    "Dispatch": lambda of, at: of(NUMBERS).sharding_round_robin_dispatch(3).map(same),
    "Drop": lambda of, at: of(ROWS).drop(1),
    "Enumerate": lambda of, at: of(WORDS).enumerate(5),
    "Filter": lambda of, at: of(NUMBERS).filter(is_small),
    "FilterColumns": lambda of, at: of(ROWS).filter(is_small, 0),
    "Flatmap": lambda of, at: of(NUMBERS).flatmap(few),
    "FlatmapColumns": lambda of, at: of(ROWS).flatmap(few, 0),
    "Flatten": lambda of, at: of(DICTS).flatten(),
    "Fork": lambda of, at: of(NUMBERS).then(Fork(2)),
    "ForkTap": lambda of, at: branches(of(NUMBERS).fork(3)),
    "FullSync": lambda of, at: of(NUMBERS).batch(3).fullsync(),
    "GroupBy": lambda of, at: of(NUMBERS).groupby(parity, group_size=2, keep_key=True),
    "Header": lambda of, at: of(NUMBERS).header(5),
    "InBatchShuffle": lambda of, at: of(NUMBERS).batch(5).in_batch_shuffle(),
    "InMemoryCache": lambda of, at: stream(NUMBERS).shuffle(window=4).in_memory_cache(),
    "Map": lambda of, at: of(NUMBERS).map(str),
    "MapBatches": lambda of, at: of(NUMBERS).map_batches(sorted, 4),
    "MapColumns": lambda of, at: of(ROWS).map(add, [0, 1], -1),
    "MaxTokenBucketize": lambda of, at: of(WORDS).max_token_bucketize(8, buffer_size=4),
    "Mix": lambda of, at: of(NUMBERS).mix(of(ROWS), weights=[1, 2]),
    "Mux": lambda of, at: of(NUMBERS).mux(of(ROWS)),
    "MuxLongest": lambda of, at: of(NUMBERS).mux_longest(of(ROWS)),
    "Pick": lambda of, at: Pipe.of(NUMBERS).to_iter_datapipe([3, 1, 1, 12]),
    "PinMemory": lambda of, at: of(ROWS).pin_memory(pin_memory_fn=pin),
    "Prefetch": lambda of, at: of(NUMBERS).prefetch(3),
    "RandomSplit": lambda of, at: of(NUMBERS).random_split({"a": 2, "b": 1}, seed=1, total_length=13)[1],
    "Repeat": lambda of, at: of(NUMBERS).repeat(3),
    "Rows2Columnar": lambda of, at: of(DICTS).batch(4).rows2columnar(["a"]),
    "Same": lambda of, at: of(NUMBERS).then(Same()),
    "SampleMux": lambda of, at: of(NUMBERS).then(SampleMux((1.0, 2.0)), of(ROWS)),
    "SetLength": lambda of, at: of(NUMBERS).set_length(13),
    "Shard": lambda of, at: of(NUMBERS).then(Shard(3, 1)),
    "ShardExpand": lambda of, at: of(["a-{00..03}.tar", "b.tar"]).shard_expand(),
    "Sharding": lambda of, at: of(NUMBERS).sharding_filter().map(same),
    "Shuffle": lambda of, at: of(NUMBERS).shuffle(buffer_size=4),
    "ShuffledFlatmap": lambda of, at: of(NUMBERS).shuffled_flatmap(few, buffer_size=3),
    "Slice": lambda of, at: of(ROWS).slice(0, 2),
    "ThreadMap": lambda of, at: of(NUMBERS).threadpool_map(str, scheduled_tasks=4, max_workers=2),
    "TurnTap": lambda of, at: branches(of(NUMBERS).round_robin_demux(3)),
    "Unbatch": lambda of, at: of(NUMBERS).batch(4).unbatch(),
    "WeightedDraw": lambda of, at: Pipe.of(NUMBERS).weighted([1 + i % 3 for i in NUMBERS], 9),
    "Zip": lambda of, at: of(NUMBERS).zip(of(ROWS)),
    "ZipLongest": lambda of, at: of(NUMBERS).zip_longest(of(ROWS), fill_value="-"),
    "ZipWithIter": lambda of, at: of(NUMBERS).zip_with_iter(of(NUMBERS[::-1]), same),
    "ZipWithMap": lambda of, at: of(NUMBERS).zip_with_map([x * 2 for x in NUMBERS], same),
    # --- ops on columns
    "AsColumns": lambda of, at: Pipe.of(TABLE).then(ColumnBatch(4)).then(AsColumns("numpy")),
    "ColumnBatch": lambda of, at: Pipe.of(TABLE).shuffle().batch(4),
    "MapRows": lambda of, at: Pipe.of(TABLE).map(double, batched=True),
    "Rename": lambda of, at: of(FLAT).then(Rename((("k", "key"),))),
    "FrameRows": lambda of, at: of(FLAT).batch(4).map(columns_of).rows(),
    "Select": lambda of, at: of(FLAT).then(Select(("x",))),
    "ToFrame": lambda of, at: of(FLAT).dataframe(4, as_="numpy"),
    "Where": lambda of, at: of(FLAT).filter(field("k") > 3),
    # --- ops on files
    "CheckHash": lambda of, at: opened(of, at).check_hash(dict.fromkeys(at.paths(), HASHES["sha256"])),
    "Decode": lambda of, at: opened(of, at, ".json").decode(),
    "Decompress": lambda of, at: opened(of, at, ".gz").decompress(),
    "EndCaching": lambda of, at: (
        of(["a", "b"]).on_disk_cache(Target(at)).map(content).end_caching(same_filepath_fn=True)
    ),
    "Forgiving": lambda of, at: of(at.urls()).read_from_http(skip_on_error=True),
    "LinesToParagraphs": lambda of, at: opened(of, at, mode="r").readlines().lines_to_paragraphs(),
    "ListFiles": lambda of, at: of([str(at.folder)]).list_files("*.txt"),
    "ListFilesByFsspec": lambda of, at: of([f"file://{at.folder}"]).list_files_by_fsspec("*.txt"),
    "LoadFromBz2": lambda of, at: opened(of, at, ".bz2").load_from_bz2(),
    "LoadFromRar": lambda of, at: of(at.rar()).open_files("rb").load_from_rar(),
    "LoadFromTar": lambda of, at: opened(of, at, ".tar").load_from_tar(),
    "LoadFromTfrecord": lambda of, at: opened(of, at, ".tfrecord").load_from_tfrecord(),
    "LoadFromXz": lambda of, at: opened(of, at, ".xz").load_from_xz(),
    "LoadFromZip": lambda of, at: opened(of, at, ".zip").load_from_zip(),
    "LoadParquet": lambda of, at: of(at.parquet()).load_parquet(),
    "LoadShards": lambda of, at: opened(of, at, ".tar").then(LoadShards()),
    "OpenFiles": lambda of, at: opened(of, at),
    "OpenFilesByFsspec": lambda of, at: of([f"file://{p}" for p in at.paths()]).open_files_by_fsspec("rb"),
    "ParseCsv": lambda of, at: opened(of, at).parse_csv(return_path=True),
    "ParseCsvAsDict": lambda of, at: opened(of, at).parse_csv_as_dict(),
    "ParseJsonFiles": lambda of, at: opened(of, at, ".json").parse_json_files(),
    "ParseJsonl": lambda of, at: opened(of, at, ".jsonl").parse_jsonl(),
    "ReadFromHttp": lambda of, at: of(at.urls()).read_from_http(),
    "ReadFromRemote": lambda of, at: of(at.urls()).read_from_remote(),
    "ReadFromStream": lambda of, at: opened(of, at).read_from_stream(5),
    "ReadLines": lambda of, at: opened(of, at).readlines(),
    "RandomFlip": lambda of, at: of(WORDS).map(pixels).random_flip(),
    "RandomResizedCrop": lambda of, at: of(WORDS).map(pixels).random_resized_crop((4, 6)),
    "RoutedDecode": lambda of, at: opened(of, at, ".json").routed_decode(as_text),
    "SaveByFsspec": lambda of, at: of(WORDS).map(content).save_by_fsspec("wb", Target(at), auto_mkdir=True),
    "SaveToDisk": lambda of, at: of(WORDS).map(content).save_to_disk("wb", Target(at)),
    "WebDataset": lambda of, at: opened(of, at, ".tar").load_from_tar().webdataset(),
    # --- sources
    "CachedTable": lambda of, at: Pipe.of(NUMBERS).map(str).in_memory_cache(),
    "Files": lambda of, at: Pipe.files(at.paths()),
    "FromIterable": lambda of, at: stream(NUMBERS),
    "FromSequence": lambda of, at: Pipe.of(NUMBERS),
    "FromTable": lambda of, at: Pipe.of(TABLE),
    "FromUnits": lambda of, at: Pipe.parquet(at.parquet()),
    "HuggingFace": lambda of, at: Pipe(HuggingFace("json", at.hub())),
    "StoredFiles": lambda of, at: Pipe.stored(at.paths(".jsonl")),
    "Sampled": lambda of, at: Pipe(Sampled(NUMBERS)),
    "KeyedTable": lambda of, at: of(NUMBERS).map(pairs).to_map_datapipe(),
    "WrappedIterable": lambda of, at: Pipe(WrappedIterable({"a": 1, "b": 2})),
    "WrappedSequence": lambda of, at: Pipe(WrappedSequence(ROWS)),
}


def examples() -> dict[str, Callable[[Of, At], Pipe[Any]]]:
    """All of them: these, and those that stand beside the tests of their ops."""
    found = dict(EXAMPLES)
    tests = Path(__file__).parents[1]
    for path in sorted(path for folder in ("ops", "sources", "tables") for path in (tests / folder).glob("test_*.py")):
        if "\nEXAMPLES = " in path.read_text():
            found |= importlib.import_module(f"tests.{path.parent.name}.{path.stem}").EXAMPLES
    return found


ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "AsJax": ("jax is optional and must not start in a worker", "tests/tables/test_sources.py", 'as_="jax"'),
    "BranchTap": ("abstract: what the branches of a node have in common", "tests/ops/test_datapipe_ops.py", ".fork("),
    "EachFile": ("abstract: what ops on one file have in common", "tests/ops/test_open_files.py", "open_files("),
    "HuggingFaceStream": ("its package is optional", "tests/sources/stored/test_official.py", "to_iterable_dataset("),
    "ListedItems": ("its list stays where the loader is", "tests/sources/test_listed.py", "Pipe.listed("),
    "OnDiskCache": ("never runs: end_caching takes it in", "tests/ops/test_on_disk_cache.py", "on_disk_cache("),
    "PerFile": ("abstract: what ops on one file have in common", "tests/ops/test_readlines.py", "readlines("),
    "ReadFromGdrive": ("a service on the network", "tests/ops/test_read_from_http.py", "read_from_gdrive("),
    "Tabular": ("abstract: what sources of rows have in common", "tests/tables/test_sources.py", "Pipe.of(frame("),
    "WindowOp": ("abstract: what bucket and pack have in common", "tests/ops/test_pack.py", "pack("),
    "NumberedOp": (
        "abstract: what packed rows and measured documents have in common",
        "tests/ops/test_measured.py",
        "sized(",
    ),
}
"""Class -> (why not here, the file whose tests cover it, what that file calls)."""


def columns_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def as_text(key: str, data: Any) -> Any:
    return data.decode() if isinstance(data, bytes) else None


def pairs(x: int) -> tuple[int, int]:
    return x, -x
