"""One example a verb: the body of `verb_NAME` is what the page of verbs shows, and a test runs it.

They run in a folder that holds the files of `make_files`.
"""

import bz2
import gzip
import lzma
import struct
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np

from headrace import Pipe


def make_files(folder: Path) -> None:
    """What the examples read."""
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "b.txt").write_text("three\n")
    (folder / "points.csv").write_text("x,y\n1,2\n3,4\n")
    (folder / "points.jsonl").write_text('{"x": 1}\n{"x": 3}\n')
    (folder / "point.json").write_text('{"x": 1}')
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (folder / "a.txt.bz2").write_bytes(bz2.compress(b"one\ntwo\n"))
    (folder / "a.txt.xz").write_bytes(lzma.compress(b"one\ntwo\n"))
    with tarfile.open(folder / "cats.tar", "w") as archive:
        for name, content in {"0.cls": b"3", "0.json": b'{"x": 1}', "1.cls": b"5", "1.json": b'{"x": 2}'}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    with zipfile.ZipFile(folder / "cats.zip", "w") as zipped:
        zipped.writestr("0.cls", "3")
    (folder / "points.tfrecord").write_bytes(_tfrecord())


def _tfrecord() -> bytes:
    """One record that holds an example with no features."""
    from headrace.sources.crc32c import stored_crc

    length = struct.pack("<Q", 0)
    return length + stored_crc(length) + stored_crc(b"")


def verb_of():
    assert list(Pipe.of([3, 1, 2])) == [3, 1, 2]  # a sequence: any sample by its position
    assert list(Pipe.of(lambda: iter("ab"))) == ["a", "b"]  # a function that makes a fresh iterable each epoch


def verb_then():
    from headrace.ops.shape.batch import Batch

    assert list(Pipe.of(range(3)).then(Batch(2))) == [[0, 1], [2]]  # the way for an op of your own


def verb_map():
    assert list(Pipe.of([1, 2]).map(lambda x: x * 10)) == [10, 20]
    assert list(Pipe.of([(1, 2)]).map(abs, input_col=1)) == [(1, 2)]


def verb_filter():
    assert list(Pipe.of(range(6)).filter(lambda x: x % 2)) == [1, 3, 5]


def verb_flatmap():
    assert list(Pipe.of(["ab", "c"]).flatmap(list)) == ["a", "b", "c"]


def verb_batch():
    assert list(Pipe.of(range(5)).batch(2)) == [[0, 1], [2, 3], [4]]
    assert list(Pipe.of(range(5)).batch(2, drop_last=True)) == [[0, 1], [2, 3]]


def verb_unbatch():
    assert list(Pipe.of([[1, 2], [3]]).unbatch()) == [1, 2, 3]


def verb_collate():
    (batch,) = Pipe.of([{"x": 1.0, "name": "a"}, {"x": 2.0, "name": "b"}]).batch(2).collate()
    assert batch["x"].tolist() == [1.0, 2.0]
    assert batch["name"] == ["a", "b"]


def verb_shuffle():
    pipe = Pipe.of(range(8)).shuffle()
    assert sorted(pipe) == list(range(8))
    nearby = list(Pipe.of(range(8)).shuffle(window=4))  # inside windows: a stream, or files read in order
    assert sorted(nearby[:4]) == [0, 1, 2, 3]


def verb_weighted():
    drawn = list(Pipe.of(["rare", "never"]).weighted([1.0, 0.0], count=3))
    assert drawn == ["rare", "rare", "rare"]


def verb_sharding_filter():
    pipe = Pipe.of(lambda: iter(range(100))).sharding_filter().map(str)  # map runs in all workers
    assert list(pipe)[:2] == ["0", "1"]


def verb_header():
    assert list(Pipe.of(range(1000)).header(2)) == [0, 1]


def verb_cycle():
    assert list(Pipe.of([1, 2]).cycle(2)) == [1, 2, 1, 2]


def verb_enumerate():
    assert list(Pipe.of(["a", "b"]).enumerate()) == [(0, "a"), (1, "b")]


def verb_zip():
    assert list(Pipe.of([1, 2]).zip(Pipe.of(["a", "b"]))) == [(1, "a"), (2, "b")]


def verb_concat():
    assert list(Pipe.of([1]).concat(Pipe.of([2, 3]))) == [1, 2, 3]


def verb_mix():
    pipe = Pipe.of(["web"] * 8).mix(Pipe.of(["book"] * 8), weights=[0.75, 0.25])
    assert sorted(set(pipe)) == ["book", "web"]


def verb_tokens():
    from headrace.ops.text.store import TokenWriter

    writer = TokenWriter("corpus", "uint16", {})  # as `headrace tokenize` does
    writer.append([np.array([5, 6, 7]), np.array([8])])
    writer.finish()
    assert [document.tolist() for document in Pipe.tokens("corpus")] == [[5, 6, 7], [8]]


def verb_tokenize():
    letters = Pipe.of(["ab", "c"]).tokenize(lambda text: [ord(letter) for letter in text], eos=0)
    assert [tokens.tolist() for tokens in letters] == [[97, 98, 0], [99, 0]]


def verb_sized():
    documents = [[1, 2, 3], [4]]
    rows = Pipe.of(documents).sized([3, 1]).pack(2)  # lengths are known: any row can be had by its number
    assert rows.indexed(0, 0).get(1)["tokens"].tolist() == [3, 4]


def verb_pack():
    documents = Pipe.of([[1, 2, 3], [4, 5], [6]])
    assert [row["tokens"].tolist() for row in documents.pack(4)] == [[1, 2, 3, 4], [5, 6, 0, 0]]
    whole = documents.pack(4, how="fit", form="flat")
    assert sorted(row["cu_seqlens"].tolist() for row in whole) == [[0, 2], [0, 3, 4]]


def verb_bucket():
    batches = Pipe.of([[1], [1, 2, 3], [1, 2], [1, 2, 3]]).bucket(6)
    assert sorted([len(sample) for sample in batch] for batch in batches) == [[1, 2], [3, 3]]


def verb_balance():
    steps = Pipe.of([[1], [1, 2, 3], [1, 2], [1, 2, 3]]).sized([1, 3, 2, 3]).balance(rows=2)
    assert sorted([len(sample) for sample in step] for step in steps) == [[1, 2], [3, 3]]


def verb_select():
    frame = {"x": np.arange(2), "y": np.arange(2)}
    assert list(Pipe.of(frame).select("x")) == [{"x": 0}, {"x": 1}]


def verb_rename():
    assert list(Pipe.of({"x": np.arange(1)}).rename(x="label")) == [{"label": 0}]


def verb_dataframe():
    (frame,) = Pipe.of([{"x": 1}, {"x": 2}]).dataframe(2)
    assert frame["x"].tolist() == [1, 2]


def verb_rows():
    assert list(Pipe.of([{"x": np.array([1, 2])}]).rows()) == [{"x": 1}, {"x": 2}]


def verb_parquet():
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2, 3]}), "points.parquet")
    assert list(Pipe.parquet("points.parquet")) == [{"x": 1}, {"x": 2}, {"x": 3}]


def verb_arrow():
    import pyarrow as pa
    from pyarrow import feather

    feather.write_feather(pa.table({"x": [1, 2]}), "points.arrow", compression="uncompressed")
    assert list(Pipe.arrow("points.arrow")) == [{"x": 1}, {"x": 2}]


def verb_load_parquet():
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2]}), "two.parquet")
    assert list(Pipe.of(["two.parquet"]).load_parquet()) == [{"x": 1}, {"x": 2}]


def verb_files():
    assert list(Pipe.files("*.txt")) == ["a.txt", "b.txt"]


def verb_lines():
    assert list(Pipe.lines("*.txt")) == ["one", "two", "three"]


def verb_csv():
    assert list(Pipe.csv("points.csv", header=True)) == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]


def verb_jsonl():
    assert list(Pipe.jsonl("points.jsonl")) == [{"x": 1}, {"x": 3}]


def verb_tar():
    names = [name for name, _ in Pipe.tar("cats.tar")]
    assert names[0] == "cats.tar/0.cls"


def verb_shards():
    first = next(iter(Pipe.shards("cats.tar")))
    assert first == {"__key__": "0", ".cls": b"3", ".json": b'{"x": 1}'}


def verb_tfrecords():
    assert list(Pipe.tfrecords("points.tfrecord")) == [{}]


def verb_stored():
    pipe = Pipe.stored("points.jsonl").shuffle()  # an index is made once, so the shuffle is exact
    assert sorted(sample["x"] for sample in pipe) == [1, 3]


def verb_list_files():
    assert [Path(name).name for name in Pipe.of(["."]).list_files("*.txt")] == ["a.txt", "b.txt"]


def verb_open_files():
    assert [stream.read() for _, stream in Pipe.of(["a.txt"]).open_files()] == ["one\ntwo\n"]


def verb_read_from_stream():
    assert list(Pipe.of(["a.txt"]).open_files().read_from_stream()) == [("a.txt", "one\ntwo\n")]


def verb_readlines():
    assert list(Pipe.of(["a.txt"]).open_files().readlines()) == [("a.txt", "one"), ("a.txt", "two")]


def verb_parse_csv():
    assert list(Pipe.of(["points.csv"]).open_files().parse_csv(skip_lines=1)) == [["1", "2"], ["3", "4"]]


def verb_parse_csv_as_dict():
    assert next(iter(Pipe.of(["points.csv"]).open_files().parse_csv_as_dict())) == {"x": "1", "y": "2"}


def verb_parse_json_files():
    assert list(Pipe.of(["point.json"]).open_files().parse_json_files()) == [("point.json", {"x": 1})]


def verb_parse_jsonl():
    assert list(Pipe.of(["points.jsonl"]).open_files().parse_jsonl()) == [{"x": 1}, {"x": 3}]


def verb_lines_to_paragraphs():
    lines = Pipe.of([("a", "one"), ("a", "two"), ("b", "three")])
    assert list(lines.lines_to_paragraphs()) == [("a", "one\ntwo"), ("b", "three")]


def verb_load_from_tar():
    found = [(name, stream.read()) for name, stream in Pipe.of(["cats.tar"]).open_files("rb").load_from_tar()]
    assert found[0] == ("cats.tar/0.cls", b"3")


def verb_load_from_zip():
    found = [(name, stream.read()) for name, stream in Pipe.of(["cats.zip"]).open_files("rb").load_from_zip()]
    assert found == [("cats.zip/0.cls", b"3")]


def verb_load_from_rar():
    pipe = Pipe.of(["cats.rar"]).open_files("rb").load_from_rar()  # needs the extra `rar` and a program that unpacks
    assert "load_from_rar" in repr(pipe)


def verb_load_from_bz2():
    (found,) = [stream.read() for _, stream in Pipe.of(["a.txt.bz2"]).open_files("rb").load_from_bz2()]
    assert found == b"one\ntwo\n"


def verb_load_from_xz():
    (found,) = [stream.read() for _, stream in Pipe.of(["a.txt.xz"]).open_files("rb").load_from_xz()]
    assert found == b"one\ntwo\n"


def verb_decompress():
    (found,) = [stream.read() for _, stream in Pipe.of(["a.txt.gz"]).open_files("rb").decompress()]
    assert found == b"one\ntwo\n"


def verb_extract():
    (found,) = [stream.read() for _, stream in Pipe.of(["a.txt.gz"]).open_files("rb").extract()]
    assert found == b"one\ntwo\n"


def verb_load_from_tfrecord():
    assert list(Pipe.of(["points.tfrecord"]).open_files("rb").load_from_tfrecord()) == [{}]


def verb_shard_expand():
    assert list(Pipe.of(["x-{0..2}.tar"]).shard_expand()) == ["x-0.tar", "x-1.tar", "x-2.tar"]


def verb_webdataset():
    files = Pipe.of([("s/0.cls", b"3"), ("s/0.txt", b"three"), ("s/1.cls", b"5")])
    assert list(files.webdataset()) == [
        {"__key__": "s/0", ".cls": b"3", ".txt": b"three"},
        {"__key__": "s/1", ".cls": b"5"},
    ]


def verb_check_hash():
    import hashlib

    known = {"a": hashlib.sha256(b"one").hexdigest()}
    assert list(Pipe.of([("a", b"one")]).check_hash(known)) == [("a", b"one")]


def verb_decode():
    assert list(Pipe.of([("point.json", b'{"x": 1}')]).decode()) == [("point.json", {"x": 1})]


def verb_routed_decode():
    def numbers(kind: str, data: bytes) -> list[int] | None:
        return list(data) if kind == "bin" else None

    assert list(Pipe.of([("a.bin", b"\x01\x02")]).routed_decode(numbers)) == [("a.bin", [1, 2])]


def verb_random_resized_crop():
    photo = np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)
    (part,) = Pipe.of([photo]).random_resized_crop(16)
    assert part.shape == (16, 16, 3)


def verb_random_flip():
    photo = np.arange(2 * 3 * 1, dtype=np.uint8).reshape(2, 3, 1)
    assert [turned.tolist() for turned in Pipe.of([photo]).random_flip(1.0)] == [[[[2], [1], [0]], [[5], [4], [3]]]]


def verb_save_to_disk():
    assert list(Pipe.of([("c.txt", "four")]).save_to_disk(folder="made")) == ["made/c.txt"]
    assert Path("made/c.txt").read_text() == "four"


def verb_read_from_http():
    pipe = Pipe.of(["https://example.org/data.csv"]).read_from_http(timeout=10).parse_csv()  # read when iterated
    assert "read_from_http" in repr(pipe)


def verb_read_from_gdrive():
    pipe = Pipe.of(["https://drive.google.com/uc?id=0"]).read_from_gdrive()
    assert "read_from_gdrive" in repr(pipe)


def verb_read_from_remote():
    pipe = Pipe.of(["https://example.org/data.csv"]).read_from_remote()
    assert "read_from_remote" in repr(pipe)


def verb_list_files_by_fsspec():
    found = Pipe.of(["."]).list_files_by_fsspec(masks="*.txt")  # s3://bucket/folder, gs://..., with fsspec
    assert [Path(name).name for name in found] == ["a.txt", "b.txt"]


def verb_open_files_by_fsspec():
    assert [stream.read() for _, stream in Pipe.of(["a.txt"]).open_files_by_fsspec("rt")] == ["one\ntwo\n"]


def verb_save_by_fsspec():
    made = Pipe.of([("d.txt", "five")]).save_by_fsspec("w", filepath_fn=lambda name: f"memory://made/{name}")
    assert list(made) == ["memory://made/d.txt"]


def verb_on_disk_cache():
    cached = Pipe.of(["a"]).on_disk_cache(filepath_fn=lambda name: f"cache-{name}.txt")
    made = cached.map(lambda name: (name, b"made once")).end_caching(filepath_fn=lambda name: f"cache-{name}.txt")
    assert list(made) == ["cache-a.txt"]


def verb_end_caching():
    cached = Pipe.of(["b"]).on_disk_cache(filepath_fn=lambda name: f"cache-{name}.txt")
    made = cached.map(lambda name: (name, b"made once")).end_caching(filepath_fn=lambda name: f"cache-{name}.txt")
    assert [Path(path).read_bytes() for path in made] == [b"made once"]


def verb_drop():
    assert list(Pipe.of([(1, 2, 3)]).drop(1)) == [(1, 3)]


def verb_slice():
    assert list(Pipe.of([(1, 2, 3)]).slice(0, 2)) == [(1, 2)]


def verb_flatten():
    assert list(Pipe.of([(1, (2, 3))]).flatten()) == [(1, 2, 3)]


def verb_add_index():
    assert list(Pipe.of([{"x": 5}]).add_index()) == [{"x": 5, "index": 0}]


def verb_rows2columnar():
    assert list(Pipe.of([[{"x": 1}, {"x": 2}]]).rows2columnar()) == [{"x": [1, 2]}]


def verb_map_batches():
    assert list(Pipe.of([1, 2, 3]).map_batches(lambda xs: [sum(xs)], batch_size=2)) == [3, 3]


def verb_async_map_batches():
    async def fetched(x: int) -> int:
        return x * 10

    assert list(Pipe.of([1, 2]).async_map_batches(fetched, batch_size=2)) == [10, 20]


def verb_threadpool_map():
    assert list(Pipe.of(["a.txt", "b.txt"]).threadpool_map(lambda name: Path(name).stat().st_size)) == [8, 6]


def verb_windowed():
    assert list(Pipe.of(range(5)).windowed(3, 2)) == [[0, 1, 2], [2, 3, 4]]


def verb_bucketbatch():
    batches = list(Pipe.of(["aaa", "b", "cc", "d"]).bucketbatch(2, sort_key=lambda words: sorted(words, key=len)))
    assert sorted(len(batch) for batch in batches) == [2, 2]


def verb_in_batch_shuffle():
    (batch,) = Pipe.of([[1, 2, 3]]).in_batch_shuffle()
    assert sorted(batch) == [1, 2, 3]


def verb_groupby():
    assert list(Pipe.of(["ant", "bee", "ape"]).groupby(lambda word: word[0])) == [["ant", "ape"], ["bee"]]


def verb_max_token_bucketize():
    chunks = list(Pipe.of(["a", "bb", "ccc"]).max_token_bucketize(max_token_count=3))
    assert chunks == [["a", "bb"], ["ccc"]]


def verb_shuffled_flatmap():
    assert sorted(Pipe.of(["ab", "c"]).shuffled_flatmap(list)) == ["a", "b", "c"]


def verb_repeat():
    assert list(Pipe.of([1, 2]).repeat(2)) == [1, 1, 2, 2]


def verb_set_length():
    pipe = Pipe.of(lambda: iter(range(3))).set_length(3)
    assert len(pipe) == 3


def verb_fork():
    one, two = Pipe.of([1, 2]).fork(2)
    assert list(one.zip(two.map(str))) == [(1, "1"), (2, "2")]


def verb_demux():
    even, odd = Pipe.of(range(4)).demux(2, lambda x: x % 2)
    assert list(odd) == [1, 3]
    assert list(even) == [0, 2]


def verb_round_robin_demux():
    one, two = Pipe.of(["a", "b", "c", "d"]).round_robin_demux(2)
    assert list(one.zip(two)) == [("a", "b"), ("c", "d")]


def verb_unzip():
    numbers, letters = Pipe.of([(1, "a"), (2, "b")]).unzip(2)
    assert list(numbers.zip(letters)) == [(1, "a"), (2, "b")]


def verb_random_split():
    train, test = Pipe.of(range(10)).random_split({"train": 0.8, "test": 0.2}, seed=0)
    assert (len(list(train)), len(list(test))) == (8, 2)


def verb_mux():
    assert list(Pipe.of([1, 2]).mux(Pipe.of(["a", "b"]))) == [1, "a", 2, "b"]


def verb_mux_longest():
    assert list(Pipe.of([1]).mux_longest(Pipe.of(["a", "b"]))) == [1, "a", "b"]


def verb_zip_longest():
    assert list(Pipe.of([1]).zip_longest(Pipe.of(["a", "b"]))) == [(1, "a"), (None, "b")]


def verb_zip_with_iter():
    ages = Pipe.of([("bob", 7), ("ann", 5)])
    assert list(Pipe.of(["ann"]).zip_with_iter(ages, key_fn=str, ref_key_fn=lambda pair: pair[0])) == [
        ("ann", ("ann", 5))
    ]


def verb_zip_with_map():
    ages = Pipe.of([("ann", 5)]).to_map_datapipe()
    assert list(Pipe.of(["ann"]).zip_with_map(ages, key_fn=str)) == [("ann", 5)]


def verb_prefetch():
    assert list(Pipe.of([1, 2]).prefetch()) == [1, 2]  # nothing changes: a loader reads ahead anyway


def verb_in_memory_cache():
    assert list(Pipe.of([1, 2]).map(str).in_memory_cache(size=64)) == ["1", "2"]


def verb_sharding_round_robin_dispatch():
    from headrace import SHARDING_PRIORITIES

    once = Pipe.of(lambda: iter(range(3))).sharding_round_robin_dispatch(SHARDING_PRIORITIES.MULTIPROCESSING)
    pipe = once.map(str)  # in all workers
    assert list(pipe) == ["0", "1", "2"]


def verb_fullsync():
    assert list(Pipe.of([1, 2]).fullsync()) == [1, 2]  # alone in its job


def verb_pin_memory():
    pipe = Pipe.of([1, 2]).batch(2).pin_memory(pin_memory_fn=lambda sample, device: sample)
    assert list(pipe) == [[1, 2]]


def verb_to_iter_datapipe():
    assert list(Pipe.of(["a", "b", "c"]).to_iter_datapipe([2, 0])) == ["c", "a"]


def verb_to_map_datapipe():
    table = Pipe.of([("ann", 5), ("bob", 7)]).to_map_datapipe()
    assert table["bob"] == 7


def verb_listed():
    pipe = Pipe.listed(["b", "a"]).map(str.upper)  # map runs in workers, one item at a time
    assert list(pipe) == ["B", "A"]
