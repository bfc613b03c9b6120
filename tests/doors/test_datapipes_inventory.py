"""Every class of the inventory: its arguments, its verb, its samples, its length, its travel, its resume law."""

# ruff: noqa: E501 - one class a line

import bz2
import gzip
import hashlib
import inspect
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from headrace.datapipes import SHARDING_PRIORITIES, DataChunk, IterDataPipe, MapDataPipe, SequenceWrapper
from headrace.datapipes import iter as streams
from headrace.datapipes import map as tables
from headrace.datapipes.iter import IterableWrapper
from headrace.datapipes.utils import StreamWrapper
from headrace.doors.datapipes.iter import LEFT_OUT
from headrace.doors.datapipes.lowering import lowered
from headrace.pipe import cursor
from tests.doors.datapipe_inventory import DIFFERENT_DEFAULTS, STREAMS, TABLES
from tests.ops.file_laws import everything

KINDS = [("iter", name) for name in STREAMS] + [("map", name) for name in TABLES]


def the_class(kind: str, name: str) -> Any:
    return getattr(streams if kind == "iter" else tables, name)


def the_spec(kind: str, name: str) -> tuple[str, str]:
    return (STREAMS if kind == "iter" else TABLES)[name]


# --- names and arguments ----------------------------------------------------------------------------------------------


def test_the_lists_are_complete() -> None:
    assert set(streams.__all__) == {*STREAMS, "IterDataPipe"}
    assert set(tables.__all__) == {*TABLES, "MapDataPipe"}
    assert (len(STREAMS), len(TABLES)) == (86, 9)
    assert set(EXAMPLES) | set(LEFT_OUT) | {"HuggingFaceHubReader"} == set(STREAMS)
    assert set(TABLE_EXAMPLES) == set(TABLES)


class Named:
    """Stands for a default of the original that is an object of its own."""


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_the_arguments_are_those_of_the_original(kind: str, name: str) -> None:
    if name in LEFT_OUT:
        pytest.skip(LEFT_OUT[name])
    verb, arguments = the_spec(kind, name)
    names = ("DataChunk", "default_collate", "_default_len_fn", "_default_line_join", "pin_memory_fn",
             "extension_extract_fn", "SequentialSampler", "default_fn")  # fmt: skip
    wanted = inspect.signature(eval(f"lambda {arguments}: 0", {n: Named() for n in names}))
    ours = inspect.signature(the_class(kind, name)).parameters
    for position, parameter in enumerate(list(wanted.parameters.values())):
        if position == 0 and parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in ("FileLister",):
            continue  # the source: any of its old names is taken
        mine = _matching(ours, parameter)
        assert mine is not None, f"{name} takes no {parameter}"
        same = mine.default == parameter.default or mine.kind is mine.VAR_KEYWORD
        assert same or (name, parameter.name) in DIFFERENT_DEFAULTS, f"{name}({mine}) was {parameter}"
    if verb:
        on_tables = name == "MapToIterConverter" or (kind == "map" and name != "IterToMapConverter")
        base = MapDataPipe if on_tables else IterDataPipe
        assert callable(getattr(base, verb))


def _matching(ours: Any, parameter: inspect.Parameter) -> inspect.Parameter | None:
    if parameter.name in ours:
        return ours[parameter.name]  # type: ignore[no-any-return]
    return next((p for p in ours.values() if p.kind is p.VAR_KEYWORD), None)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_says_what_to_use_instead(name: str) -> None:
    assert "use " in LEFT_OUT[name]
    with pytest.raises(ValueError, match=f"{name} is left out of headrace: .*use "):
        getattr(streams, name)(IterableWrapper(["x"]))


def test_a_path_manager_of_iopath_is_refused_by_name() -> None:
    for make in (streams.IoPathFileLister, streams.IoPathFileOpener, streams.IoPathSaver):
        with pytest.raises(ValueError, match="iopath, which is archived; paths are read by fsspec"):
            make(IterableWrapper(["x"]), pathmgr=object())


# --- examples ---------------------------------------------------------------------------------------------------------


def numbers(n: int = 7) -> Any:
    return IterableWrapper(list(range(n)))


def unsized() -> Any:
    return IterableWrapper(lambda: iter(range(7)))


def add(a: int, b: int) -> int:
    return a + b


async def double(x: int) -> int:
    return 2 * x


def odd(x: int) -> bool:
    return x % 2 == 1


def half(x: int) -> int:
    return x % 2


def identity(x: Any) -> Any:
    return x


def pairs() -> Any:
    return IterableWrapper([(i, -i) for i in range(4)])


def dicts() -> Any:
    return IterableWrapper([{"a": i, "b": i * 2} for i in range(3)])


class Folder:
    """Files of every format that the examples read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = self.file("text.txt", b"one\ntwo\n")
        self.csv = self.file("rows.csv", b"x,y\n1,2\n")
        self.json = self.file("doc.json", b'{"a": 1}')
        self.bz2 = self.file("text.txt.bz2", bz2.compress(b"one\n"))
        self.xz = self.file("text.txt.xz", lzma.compress(b"one\n"))
        self.gz = self.file("text.txt.gz", gzip.compress(b"one\n"))
        self.tar = str(path / "files.tar")
        with tarfile.open(self.tar, "w") as tar:
            for name in ("a.txt", "a.cls", "b.txt"):
                info = tarfile.TarInfo(name)
                info.size = 3
                tar.addfile(info, io.BytesIO(name[:3].encode()))
        self.zip = str(path / "files.zip")
        with zipfile.ZipFile(self.zip, "w") as archive:
            archive.writestr("a.txt", "inside")
        (path / "out").mkdir()
        (path / "tree").mkdir()
        self.file("tree/b.txt", b"")
        self.file("tree/a.txt", b"")

    def file(self, name: str, data: bytes) -> str:
        (self.path / name).write_bytes(data)
        return str(self.path / name)

    def opened(self, *paths: str, mode: str = "rb") -> Any:
        return IterableWrapper(list(paths)).open_files(mode)


UNKNOWN = None
Example = tuple[Callable[[Folder], Any], Any, int | None]

EXAMPLES: dict[str, Example] = {
    "BatchAsyncMapper": (lambda f: streams.BatchAsyncMapper(numbers(), double, 3), [0, 2, 4, 6, 8, 10, 12], 7),
    "BatchMapper": (lambda f: streams.BatchMapper(numbers(), lambda b: [sum(b)], 3), [3, 12, 6], UNKNOWN),
    "Batcher": (lambda f: streams.Batcher(numbers(), batch_size=3), [[0, 1, 2], [3, 4, 5], [6]], 3),
    "BucketBatcher": (lambda f: streams.BucketBatcher(numbers(4), 2, bucket_num=1, sort_key=sorted), [[0, 1], [2, 3]], None),
    "Bz2FileLoader": (lambda f: streams.Bz2FileLoader(f.opened(f.bz2)), lambda f: [(f.text, b"one\n")], ...),
    "CSVDictParser": (lambda f: streams.CSVDictParser(f.opened(f.csv)), [{"x": "1", "y": "2"}], UNKNOWN),
    "CSVParser": (lambda f: streams.CSVParser(f.opened(f.csv), skip_lines=1), [["1", "2"]], UNKNOWN),
    "Collator": (lambda f: streams.Collator(numbers(4).batch(2), collate_fn=sum), [1, 5], 2),
    "Concater": (lambda f: streams.Concater(numbers(2), numbers(1)), [0, 1, 0], 3),
    "Cycler": (lambda f: streams.Cycler(numbers(2), 2), [0, 1, 0, 1], 4),
    "DataFrameMaker": (lambda f: streams.DataFrameMaker(pairs(), 3, columns=["a", "b"]).map(len), [3, 1], 2),
    "Decompressor": (lambda f: streams.Decompressor(f.opened(f.gz)), lambda f: [(f.gz, b"one\n")], ...),
    "Demultiplexer": (lambda f: streams.Demultiplexer(numbers(), 2, half)[1], [1, 3, 5], UNKNOWN),
    "Dropper": (lambda f: streams.Dropper(pairs(), 0), [(0,), (-1,), (-2,), (-3,)], 4),
    "EndOnDiskCacheHolder": (
        lambda f: streams.EndOnDiskCacheHolder(
            IterableWrapper(["a"]).on_disk_cache(filepath_fn=lambda x: str(f.path / "out" / x)).map(lambda x: (x, b"!")),
            filepath_fn=lambda x: str(f.path / "out" / x),
        ),
        lambda f: [str(f.path / "out" / "a")],
        UNKNOWN,
    ),
    "Enumerator": (lambda f: streams.Enumerator(numbers(2), starting_index=5), [(5, 0), (6, 1)], 2),
    "Extractor": (lambda f: streams.Extractor(f.opened(f.gz), "gzip"), lambda f: [(f.gz, b"one\n")], ...),
    "FSSpecFileLister": (
        lambda f: streams.FSSpecFileLister(str(f.path / "tree"), "*a.txt").map(lambda p: Path(p).name), ["a.txt"], UNKNOWN,
    ),
    "FSSpecFileOpener": (
        lambda f: streams.FSSpecFileOpener(IterableWrapper([f.text]), "rb"), lambda f: [(f.text, b"one\ntwo\n")], 1,
    ),
    "FSSpecSaver": (
        lambda f: streams.FSSpecSaver(IterableWrapper([("s", b"!")]), "wb", lambda n: str(f.path / "out" / n)),
        lambda f: [str(f.path / "out" / "s")],
        1,
    ),
    "FileLister": (
        lambda f: streams.FileLister(str(f.path / "tree"), "*.txt"),
        lambda f: [str(f.path / "tree" / n) for n in ("a.txt", "b.txt")],
        UNKNOWN,
    ),
    "FileOpener": (lambda f: streams.FileOpener([f.text], "b"), lambda f: [(f.text, b"one\ntwo\n")], ...),
    "Filter": (lambda f: streams.Filter(numbers(), filter_fn=odd), [1, 3, 5], UNKNOWN),
    "FlatMapper": (lambda f: streams.FlatMapper(numbers(4), range), [0, 0, 1, 0, 1, 2], UNKNOWN),
    "Flattener": (lambda f: streams.Flattener(IterableWrapper([((1, 2), 3)])), [(1, 2, 3)], 1),
    "Forker": (lambda f: streams.Forker(numbers(3), 2)[0].zip(numbers(3)), [(0, 0), (1, 1), (2, 2)], 3),
    "FullSync": (lambda f: streams.FullSync(numbers(3)), [0, 1, 2], ...),
    "GDriveReader": (lambda f: streams.GDriveReader(IterableWrapper([])), [], 0),
    "Grouper": (lambda f: streams.Grouper(numbers(5), half, group_size=2), [[0, 2], [1, 3], [4]], UNKNOWN),
    "HashChecker": (
        lambda f: streams.HashChecker(IterableWrapper([("n", b"x")]), {"n": hashlib.sha256(b"x").hexdigest()}),
        [("n", b"x")],
        1,
    ),
    "Header": (lambda f: streams.Header(numbers(), limit=2), [0, 1], 2),
    "HttpReader": (lambda f: streams.HttpReader(IterableWrapper([])), [], 0),
    "InBatchShuffler": (lambda f: streams.InBatchShuffler(numbers(6).batch(3)).map(sorted), [[0, 1, 2], [3, 4, 5]], 2),
    "InMemoryCacheHolder": (lambda f: streams.InMemoryCacheHolder(numbers(3)), [0, 1, 2], 3),
    "IndexAdder": (lambda f: streams.IndexAdder(dicts(), "i").map(lambda d: (d["a"], d["i"])), [(0, 0), (1, 1), (2, 2)], 3),
    "IoPathFileLister": (
        lambda f: streams.IoPathFileLister(str(f.path / "tree"), "*a.txt").map(lambda p: Path(p).name), ["a.txt"], UNKNOWN,
    ),
    "IoPathFileOpener": (
        lambda f: streams.IoPathFileOpener(IterableWrapper([f.text]), "rb"), lambda f: [(f.text, b"one\ntwo\n")], 1,
    ),
    "IoPathSaver": (
        lambda f: streams.IoPathSaver(IterableWrapper([("s", b"!")]), "wb", lambda n: str(f.path / "out" / n)),
        lambda f: [str(f.path / "out" / "s")],
        1,
    ),
    "IterKeyZipper": (lambda f: streams.IterKeyZipper(numbers(2), numbers(2), identity), [(0, 0), (1, 1)], 2),
    "IterableWrapper": (lambda f: streams.IterableWrapper([1, [2]], deepcopy=True), [1, [2]], 2),
    "JsonParser": (lambda f: streams.JsonParser(f.opened(f.json)), lambda f: [(f.json, {"a": 1})], ...),
    "LengthSetter": (lambda f: streams.LengthSetter(unsized(), 7), list(range(7)), 7),
    "LineReader": (
        lambda f: streams.LineReader(f.opened(f.text, mode="r")), lambda f: [(f.text, "one"), (f.text, "two")], UNKNOWN,
    ),
    "MapKeyZipper": (
        lambda f: streams.MapKeyZipper(numbers(2), map_datapipe=SequenceWrapper("ab"), key_fn=identity),
        [(0, "a"), (1, "b")],
        2,
    ),
    "MapToIterConverter": (lambda f: streams.MapToIterConverter(SequenceWrapper("abc"), [2, 0]), ["c", "a"], 2),
    "Mapper": (lambda f: streams.Mapper(pairs(), add, input_col=[0, 1]), [(0,)] * 4, 4),
    "MaxTokenBucketizer": (
        lambda f: streams.MaxTokenBucketizer(IterableWrapper(["a", "bb", "c"]), 2), [["a", "c"], ["bb"]], UNKNOWN,
    ),
    "Multiplexer": (lambda f: streams.Multiplexer(numbers(3), numbers(2)), [0, 0, 1, 1], 4),
    "MultiplexerLongest": (lambda f: streams.MultiplexerLongest(numbers(3), numbers(1)), [0, 0, 1, 2], 4),
    "OnDiskCacheHolder": (
        lambda f: streams.OnDiskCacheHolder(IterableWrapper(["a"]), filepath_fn=lambda x: str(f.path / "out" / x))
        .map(lambda x: (x, b"!"))
        .end_caching(filepath_fn=lambda x: str(f.path / "out" / x)),
        lambda f: [str(f.path / "out" / "a")],
        UNKNOWN,
    ),
    "OnlineReader": (lambda f: streams.OnlineReader(IterableWrapper([])), [], 0),
    "ParagraphAggregator": (
        lambda f: streams.ParagraphAggregator(IterableWrapper([("f", "a"), ("f", "b"), ("f", "")])), [("f", "a\nb")], UNKNOWN,
    ),
    "ParquetDataFrameLoader": (lambda f: streams.ParquetDataFrameLoader(IterableWrapper([parquet(f)])).map(len), [2], UNKNOWN),
    "PinMemory": (lambda f: numbers(2), [0, 1], 2),
    "Prefetcher": (lambda f: streams.Prefetcher(numbers(3), buffer_size=2), [0, 1, 2], 3),
    "RandomSplitter": (
        lambda f: streams.Concater(*streams.RandomSplitter(numbers(4), {"a": 0.5, "b": 0.5}, seed=0)).batch(4).map(sorted),
        [[0, 1, 2, 3]],
        1,
    ),
    "RarArchiveLoader": (lambda f: streams.RarArchiveLoader(IterableWrapper([])), [], ...),
    "Repeater": (lambda f: streams.Repeater(numbers(2), 2), [0, 0, 1, 1], 4),
    "RoundRobinDemultiplexer": (lambda f: streams.RoundRobinDemultiplexer(numbers(5), 2)[1], [1, 3], 2),
    "RoutedDecoder": (
        lambda f: streams.RoutedDecoder(IterableWrapper([("a.x", b"1")]), lambda key, data: int(data)), [("a.x", 1)], 1,
    ),
    "Rows2Columnar": (lambda f: streams.Rows2Columnar(dicts().batch(3), ["a"]).map(dict), [{"a": [0, 1, 2]}], 1),
    "SampleMultiplexer": (
        lambda f: streams.SampleMultiplexer({numbers(2): 0.5, numbers(2): 0.5}, seed=0).batch(4).map(sorted),
        [[0, 0, 1, 1]],
        1,
    ),
    "Sampler": (lambda f: streams.Sampler(numbers(3)), [0, 1, 2], 3),
    "Saver": (
        lambda f: streams.Saver(IterableWrapper([("n", b"!")]), "wb", lambda n: str(f.path / "out" / n)),
        lambda f: [str(f.path / "out" / "n")],
        1,
    ),
    "ShardExpander": (lambda f: streams.ShardExpander(IterableWrapper(["x-{0..1}"])), ["x-0", "x-1"], UNKNOWN),
    "ShardingFilter": (lambda f: streams.ShardingFilter(numbers(2)), [0, 1], 2),
    "ShardingRoundRobinDispatcher": (
        lambda f: streams.ShardingRoundRobinDispatcher(numbers(2), SHARDING_PRIORITIES.MULTIPROCESSING), [0, 1], 2,
    ),
    "ShuffledFlatMapper": (
        lambda f: streams.ShuffledFlatMapper(numbers(3), lambda x: [x]).batch(3).map(sorted), [[0, 1, 2]], UNKNOWN,
    ),
    "Shuffler": (lambda f: streams.Shuffler(numbers(3), buffer_size=2).batch(3).map(sorted), [[0, 1, 2]], 1),
    "Slicer": (lambda f: streams.Slicer(pairs(), 1), [(0,), (-1,), (-2,), (-3,)], 4),
    "StreamReader": (lambda f: streams.StreamReader(f.opened(f.text)), lambda f: [(f.text, b"one\ntwo\n")], ...),
    "TFRecordLoader": (lambda f: streams.TFRecordLoader(f.opened(f.file("none.tfrecord", b""))), [], ...),
    "TarArchiveLoader": (
        lambda f: streams.TarArchiveLoader(f.opened(f.tar)).map(lambda m: (Path(m[0]).name, m[1].read())),
        [("a.txt", b"a.t"), ("a.cls", b"a.c"), ("b.txt", b"b.t")],
        ...,
    ),
    "ThreadPoolMapper": (lambda f: streams.ThreadPoolMapper(numbers(3), str, scheduled_tasks=2), ["0", "1", "2"], 3),
    "UnBatcher": (lambda f: streams.UnBatcher(numbers(3).batch(2)), [0, 1, 2], UNKNOWN),
    "UnZipper": (lambda f: streams.UnZipper(pairs(), sequence_length=2)[1], [0, -1, -2, -3], 4),
    "WebDataset": (
        lambda f: streams.WebDataset(IterableWrapper([("d/a.txt", 1), ("d/a.cls", 2), ("d/b.txt", 3)])).map(len), [3, 2], UNKNOWN,
    ),
    "XzFileLoader": (lambda f: streams.XzFileLoader(f.opened(f.xz)), lambda f: [(f.text, b"one\n")], ...),
    "ZipArchiveLoader": (
        lambda f: streams.ZipArchiveLoader(f.opened(f.zip)).map(lambda m: (Path(m[0]).name, m[1].read())),
        [("a.txt", b"inside")],
        ...,
    ),
    "Zipper": (lambda f: streams.Zipper(numbers(2), numbers(3)), [(0, 0), (1, 1)], 2),
    "ZipperLongest": (lambda f: streams.ZipperLongest(numbers(2), numbers(1), fill_value=9), [(0, 0), (1, 9)], 2),
}  # fmt: skip
"""Class -> (how it is made, what it delivers, its length: None if it cannot be known, ... if it may be)."""

TABLE_EXAMPLES: dict[str, Example] = {
    "Batcher": (lambda f: tables.Batcher(SequenceWrapper("abc"), 2), [["a", "b"], ["c"]], 2),
    "Concater": (lambda f: tables.Concater(SequenceWrapper("ab"), SequenceWrapper("c")), ["a", "b", "c"], 3),
    "InMemoryCacheHolder": (lambda f: tables.InMemoryCacheHolder(SequenceWrapper("ab")), ["a", "b"], 2),
    "IterToMapConverter": (lambda f: tables.IterToMapConverter(pairs()), [0, -1, -2, -3], 4),
    "Mapper": (lambda f: tables.Mapper(SequenceWrapper("ab"), str.upper), ["A", "B"], 2),
    "SequenceWrapper": (lambda f: tables.SequenceWrapper("ab"), ["a", "b"], 2),
    "Shuffler": (lambda f: tables.Shuffler(SequenceWrapper("ab")).batch(2).map(sorted), [["a", "b"]], 1),
    "UnZipper": (lambda f: tables.UnZipper(SequenceWrapper([(1, 2), (3, 4)]), 2)[1], [2, 4], 2),
    "Zipper": (lambda f: tables.Zipper(SequenceWrapper("ab"), SequenceWrapper("cde")), [("a", "c"), ("b", "d")], 2),
}


def parquet(folder: Folder) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = str(folder.path / "rows.parquet")
    pq.write_table(pa.table({"a": [1, 2]}), path)
    return path


CASES = [("iter", name, *example) for name, example in EXAMPLES.items()] + [
    ("map", name, *example) for name, example in TABLE_EXAMPLES.items()
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(("kind", "name", "make", "expected", "size"), CASES, ids=[f"{c[0]}.{c[1]}" for c in CASES])
def test_a_class_delivers_measures_travels_and_resumes(
    kind: str, name: str, make: Any, expected: Any, size: Any, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "PinMemory":
        with pytest.raises(RuntimeError, match="can only be used when CUDA is available"):
            streams.PinMemory(numbers())
    if name == "RarArchiveLoader":
        pytest.importorskip("rarfile")
    pipe = make(folder)
    wanted = expected(folder) if callable(expected) else expected
    assert everything(pipe) == wanted
    begun = iter(pipe)
    for _ in everything(islice(begun, 1)):
        pass
    del begun
    assert everything(pipe) == wanted, "read again after a partial reading"
    assert repr(everything(make(folder))) == repr(wanted)
    _check_length(pipe, size)
    plain = lowered(pipe)
    if "lambda" not in repr(plain):
        assert everything(pickle.loads(pickle.dumps(pipe))) == wanted
    for checkpoint in (1, 1000):
        monkeypatch.setattr(cursor, "CHECKPOINT", checkpoint)
        for done in range(len(wanted) + 1):
            reading = cursor.Opening(plain.ordinals(), 0, 0).open(plain)
            head = everything(islice(reading, done))
            state = json.loads(json.dumps(reading.state()))
            rest = everything(cursor.Opening(plain.ordinals(), 0, 0).open(plain, state))
            assert head + rest == everything(cursor.Opening(plain.ordinals(), 0, 0).open(plain)), (
                f"resumed after {done}"
            )


def _check_length(pipe: Any, size: Any) -> None:
    if size is None:
        with pytest.raises(TypeError):
            len(pipe)
    elif size is not ...:
        assert len(pipe) == size


# --- rows of the table of errors and lengths --------------------------------------------------------------------------

ERRORS: list[tuple[Callable[[], Any], type[BaseException], str]] = [
    (lambda: numbers().batch(0), AssertionError, "Batch size is required to be larger than 0!"),
    (lambda: numbers().bucketbatch(0), AssertionError, "Batch size is required to be larger than 0!"),
    (lambda: numbers().bucketbatch(1, batch_num=0), AssertionError, "Number of batches"),
    (lambda: numbers().bucketbatch(1, bucket_num=0), AssertionError, "Number of buckets"),
    (lambda: numbers().map_batches(sum, 0), AssertionError, "Batch size is required"),
    (lambda: numbers().unbatch(-2), ValueError, "unbatch_level must be -1 or >= 0"),
    (lambda: list(numbers().unbatch(2)), IndexError, "exceeds the depth of the DataPipe"),
    (lambda: numbers().shuffle(buffer_size=0), AssertionError, "buffer_size should be larger than 0"),
    (lambda: numbers().shuffle(10), TypeError, "positional"),
    (lambda: numbers().shuffled_flatmap(buffer_size=0), AssertionError, "buffer_size should be larger than 0"),
    (lambda: numbers().groupby(half, group_size=0), AssertionError, "group_size must be > 0"),
    (lambda: list(numbers().filter(identity)), ValueError, "Boolean output is required for `filter_fn`"),
    (lambda: numbers().fork(0), ValueError, "Expected `num_instances` larger than 0, but 0 is found"),
    (lambda: numbers().fork(2, copy="x"), ValueError, "Unknown copy method `x` requested"),
    (lambda: list(numbers().demux(1, identity)[0]), ValueError, "should be between 0 and 0"),
    (lambda: numbers().round_robin_demux(0), ValueError, "Expected `num_instaces` larger than 0"),
    (lambda: streams.Concater(), ValueError, "Expected at least one DataPipe, but got nothing"),
    (lambda: streams.Zipper(), ValueError, "Expected at least one DataPipe, but got nothing"),
    (lambda: numbers().concat([1]), TypeError, "Expected all inputs to be `IterDataPipe`"),
    (lambda: numbers().zip([1]), TypeError, "All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`."),
    (lambda: numbers().zip_longest([1]), TypeError, "`ZipperLongestIterDataPipe`"),
    (lambda: numbers().zip_with_iter([1], identity), TypeError, "ref_datapipe must be a IterDataPipe"),
    (lambda: numbers().zip_with_iter(numbers(), identity, buffer_size=0), ValueError, "'buffer_size' is required"),
    (lambda: numbers().zip_with_map(3, identity), TypeError, "map_datapipe must be a MapDataPipe"),
    (lambda: numbers().cycle(-1), ValueError, "Expected non-negative count, got -1"),
    (lambda: numbers().repeat(1), ValueError, "The number of repetition must be > 1, got 1"),
    (lambda: numbers().set_length(-1), AssertionError, ""),
    (lambda: list(numbers().add_index()), NotImplementedError, "We only support adding index to row or batch in dict"),
    (lambda: unsized().random_split({"a": 1}, 0), TypeError, "RandomSplitter needs `total_length`"),
    (lambda: numbers().random_split({"a": 1}, 0, target="b"), KeyError, "`target=b` does not match any key"),
    (lambda: streams.SampleMultiplexer({}), ValueError, "Empty dictionary passed"),
    (lambda: streams.SampleMultiplexer({numbers(): 0}), ValueError, "Expecting a positive and non-zero weight, got 0"),
    (lambda: numbers().prefetch(0), ValueError, "'buffer_size' is required to be a positive integer"),
    (lambda: numbers().threadpool_map(str, scheduled_tasks=0), ValueError, "'scheduled_tasks' is required"),
    (lambda: numbers().async_map_batches(str, 1), ValueError, "Expected a corotine function"),
    (lambda: numbers().map(3), TypeError, "A callable function is expected, but <class 'int'> is provided."),
    (lambda: numbers().map(add), ValueError, "takes 2 positional parameters, but 1 are required"),
    (lambda: pairs().map(str, output_col=1), ValueError, "`output_col` must be None when `input_col` is None."),
    (lambda: len(numbers().cycle()), TypeError, "cycles forever, and therefore doesn't have valid length"),
    (lambda: len(numbers().flatmap(range)), TypeError, "FlatMapperIterDataPipe's length relies on the output of its function."),
    (lambda: len(numbers().map_batches(sum, 2)), TypeError, "length relies on the output of its function."),
    (lambda: len(unsized().in_memory_cache()), TypeError, "doesn't have valid length until the cache is loaded."),
    (lambda: len(unsized().map(str)), TypeError, "IterableWrapperIterDataPipe instance doesn't have valid length"),
    (lambda: len(unsized().header(None)), TypeError, "The length of this HeaderIterDataPipe cannot be determined."),
    (lambda: numbers().sharding_round_robin_dispatch(1), NotImplementedError, "SHARDING_PRIORITIES.MULTIPROCESSING"),
    (lambda: streams.IterableWrapper(3), ValueError, "IterableWrapper needs something that can be iterated"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "kind", "text"), ERRORS)
def test_what_is_wrong_is_said_with_the_known_type_and_text(
    wrong: Callable[[], Any], kind: type[BaseException], text: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    assert text in str(caught.value)


def test_the_length_of_a_header_is_guessed_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="The length of this HeaderIterDataPipe is inferred to be equal to its limit"):
        assert len(unsized().header(3)) == 3


def test_a_header_reads_no_more_than_it_delivers() -> None:
    read: list[int] = []
    for _ in IterableWrapper(lambda: iter(range(9))).map(read.append).header(2):
        pass
    assert len(read) == 2


def test_batches_are_wrapped_if_asked_for() -> None:
    (batch,) = IterableWrapper([1, 2]).batch(2, wrapper_class=DataChunk)
    assert type(batch) is DataChunk
    assert batch.as_str() == "[1, 2]"
    assert list(batch.raw_iterator()) == batch.items == [1, 2]


def test_a_fork_into_one_is_the_pipe_itself_and_of_one_turn_a_warning() -> None:
    pipe = numbers()
    assert pipe.fork(1) is pipe
    with pytest.warns(UserWarning, match="no-op"):
        assert pipe.round_robin_demux(1) == [pipe]


def test_collate_makes_tensors_where_torch_is_installed() -> None:
    torch = pytest.importorskip("torch")
    (batch,) = numbers(3).batch(3).collate()
    assert torch.equal(batch, torch.tensor([0, 1, 2]))


def test_functions_without_arguments_and_samplers_of_torch() -> None:
    samplers = pytest.importorskip("torch.utils.data")
    drawn = list(streams.Sampler(numbers(6), samplers.RandomSampler))
    assert sorted(drawn) == list(range(6))


def test_streams_are_closed_when_they_are_filtered_out(tmp_path: Path) -> None:
    StreamWrapper.debug_unclosed_streams = True
    try:
        path = tmp_path / "x"
        path.write_text("x")
        assert list(IterableWrapper([str(path)] * 3).open_files().filter(lambda x: False)) == []
        assert not StreamWrapper.session_streams
    finally:
        StreamWrapper.debug_unclosed_streams = False
        StreamWrapper.session_streams.clear()
