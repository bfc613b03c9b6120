"""Programs as users of TorchData wrote them, after that project's tutorials and examples, with other imports only."""

import csv
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.datapipes as dp
from headrace import DataLoader2, MultiProcessingReadingService, ReadingServiceInterface
from headrace.datapipes.adapter import Shuffle
from headrace.datapipes.graph import find_dps, replace_dp, traverse_dps
from headrace.datapipes.iter import FileLister, FileOpener, IterableWrapper, IterDataPipe, Mapper
from headrace.datapipes.map import MapDataPipe, SequenceWrapper

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")


def write_tables(folder: Path) -> None:
    for number in range(3):
        with open(folder / f"sample_data{number}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["label", "a", "b"])
            rows.writerows([10 * number + i, i / 10, -i] for i in range(10))
    (folder / "readme.txt").write_text("no table")


def is_table(name: str) -> bool:
    return "sample_data" in name and name.endswith(".csv")


def as_arrays(row: list[str]) -> dict[str, Any]:
    return {"label": np.array(row[0], np.int32), "data": np.array(row[1:], dtype=np.float64)}


def test_tables_under_torchs_dataloader(tmp_path: Path) -> None:
    write_tables(tmp_path)

    def build(shard: bool) -> Any:
        pipe = dp.iter.FileLister(str(tmp_path)).filter(filter_fn=is_table).open_files(mode="rt")
        pipe = pipe.parse_csv(delimiter=",", skip_lines=1).shuffle()
        return (pipe.sharding_filter() if shard else pipe).map(as_arrays)

    for shard, batches in ((False, 12), (True, 6)):
        loader = data.DataLoader(dataset=build(shard), batch_size=5, num_workers=2, multiprocessing_context="fork")
        first = next(iter(loader))
        assert first["label"].size() == torch.Size([5])
        assert first["data"].dtype == torch.float64
        assert sum(1 for _ in loader) == batches
    still = data.DataLoader(dataset=build(True), batch_size=None, shuffle=False)
    assert [int(row["label"]) for row in still] == list(range(30))


def test_a_split_for_training_and_validation() -> None:
    pipe = IterableWrapper(range(10))
    train, valid = pipe.random_split(total_length=10, weights={"train": 0.5, "valid": 0.5}, seed=0)
    for _ in range(2):
        assert sorted([*train, *valid]) == list(range(10))
        assert (len(train), len(valid)) == (5, 5)
    assert list(train) == list(train)


@dp.functional_datapipe("apply_in_tutorial")
class Applier(IterDataPipe[Any]):
    def __init__(self, source_dp: Any, fn: Any) -> None:
        super().__init__()
        self.source_dp = source_dp
        self.fn = fn

    def __iter__(self) -> Iterator[Any]:
        for d in self.source_dp:
            yield self.fn(d)

    def __len__(self) -> int:
        return len(self.source_dp)


def double(x: int) -> int:
    return 2 * x


def test_a_class_of_ones_own_by_name_and_by_verb() -> None:
    by_class = Applier(IterableWrapper(range(5)), fn=double)
    by_verb = IterableWrapper(range(5)).apply_in_tutorial(fn=double)
    assert list(by_class) == list(by_verb) == [0, 2, 4, 6, 8]
    assert (len(by_class), len(by_verb.batch(2))) == (5, 3)
    stacked = dp.iter.Batcher(dp.iter.Shuffler(dp.iter.Mapper(by_class, fn=double)), 2)
    assert sorted(x for batch in stacked for x in batch) == [0, 4, 8, 12, 16]
    assert "apply_in_tutorial" in dir(IterableWrapper([]))


def test_files_behind_urls(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\nmore\n")
    urls = IterableWrapper([f"file://{tmp_path}"]).list_files_by_fsspec(masks="*.txt")
    lines = urls.open_files_by_fsspec(mode="rt").readlines(return_path=False)
    assert sorted(lines) == ["more", "more", "one", "two"]
    saved = IterableWrapper([("a", "1"), ("b", "2")]).save_by_fsspec(
        filepath_fn=lambda name: f"file://{tmp_path}/{name}.out", mode="w"
    )
    assert len(list(saved)) == 2
    assert (tmp_path / "b.out").read_text() == "2"


def test_downloads_that_are_kept(tmp_path: Path) -> None:
    content = b"1,first\n2,second\n"
    fetched: list[str] = []

    def fetch(url: str) -> tuple[str, Any]:
        fetched.append(url)
        return url, io.BytesIO(content)

    def place(url: str) -> str:
        return os.path.join(tmp_path, os.path.basename(url))

    target = place("http://example.org/train.csv")
    for _ in range(2):
        cached = IterableWrapper(["http://example.org/train.csv"]).on_disk_cache(
            filepath_fn=place, hash_dict={target: hashlib.md5(content).hexdigest()}, hash_type="md5"
        )
        cached = cached.map(fetch).end_caching(mode="wb", same_filepath_fn=True)
        rows = FileOpener(cached, mode="b").parse_csv().map(lambda row: (int(row[0]), " ".join(row[1:])))
        assert list(rows.shuffle().set_shuffle(False).sharding_filter()) == [(1, "first"), (2, "second")]
    assert len(fetched) == 1


def test_images_and_their_labels_out_of_two_archives(tmp_path: Path) -> None:
    for name in ("images", "labels"):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as archive:
            for number in (3, 1, 2) if name == "images" else (1, 2, 3, 4):
                for end in ("jpg", "txt") if name == "images" else ("mat",):
                    info = tarfile.TarInfo(f"{name}/item_{number:04}.{end}")
                    info.size = 2
                    archive.addfile(info, io.BytesIO(f"{name[0]}{number}".encode()))

    def key(item: tuple[str, Any]) -> str:
        return Path(item[0]).stem

    def kind(item: tuple[str, Any]) -> int | None:
        return {".jpg": 0, ".mat": 1}.get(Path(item[0]).suffix)

    files = IterableWrapper([str(tmp_path / "images.tar.gz"), str(tmp_path / "labels.tar.gz")]).open_files(mode="b")
    with pytest.warns(UserWarning, match="Unlimited buffer size"):
        images, labels = files.load_from_tar().demux(2, kind, drop_none=True, buffer_size=-1)
    pairs = images.zip_with_iter(labels, key_fn=key, ref_key_fn=key).map(lambda p: (p[0][1].read(), p[1][1].read()))
    assert list(pairs) == [(b"i3", b"l3"), (b"i1", b"l1"), (b"i2", b"l2")]


def test_a_folder_of_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(4):
            np.save(tmp_path / name / f"{number}.npy", np.full(3, number))
    names = sorted(entry.name for entry in os.scandir(tmp_path) if entry.is_dir())
    classes = {name: number for number, name in enumerate(names)}

    def load(path: str) -> tuple[Any, int]:
        return torch.from_numpy(np.load(path)), classes[Path(path).parent.name]

    pipe = FileLister(str(tmp_path), masks="*.npy", recursive=True).shuffle().sharding_filter().map(load)
    loader = data.DataLoader(pipe, batch_size=4, num_workers=2, multiprocessing_context="fork", shuffle=True)
    seen = [(tuple(x.tolist()), int(y)) for images, labels in loader for x, y in zip(images, labels, strict=True)]
    assert sorted(seen) == sorted(((n, n, n), c) for n in range(4) for c in range(2))


class Questions(IterDataPipe[Any]):
    """Makes many samples out of one document."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        for _, document in self.source:
            for entry in document["data"]:
                yield from ((entry["title"], question) for question in entry["questions"])


def test_documents_with_many_samples(tmp_path: Path) -> None:
    for number in range(4):
        entries = [{"title": f"{number}{i}", "questions": [f"q{k}" for k in range(i + 1)]} for i in range(3)]
        (tmp_path / f"{number}.json").write_text(json.dumps({"data": entries}))
    files = FileLister(str(tmp_path), "*.json").shuffle().sharding_filter().open_files(encoding="utf-8")
    pipe = Questions(files.parse_json_files())
    expected = sorted((f"{n}{i}", f"q{k}") for n in range(4) for i in range(3) for k in range(i + 1))
    assert sorted(pipe) == expected
    with DataLoader2(pipe, reading_service=MultiProcessingReadingService(2, "fork")) as dl:
        assert sorted(dl) == sorted(dl) == expected


def normalise(x: int) -> dict[str, Any]:
    return {"x": torch.full((2,), float(x)), "y": x % 2}


def test_a_training_loop_with_workers() -> None:
    pipe = IterableWrapper(range(20)).shuffle().sharding_filter().map(normalise).batch(4).collate()
    loader = DataLoader2(datapipe=pipe, reading_service=MultiProcessingReadingService(num_workers=2))
    epochs = []
    for epoch in range(3):
        loader.seed(epoch % 2)
        seen = []
        for step, batch in enumerate(loader):
            assert batch["x"].shape == (4, 2)
            assert batch["y"].dtype == torch.int64
            seen.extend(batch["x"][:, 0].tolist())
            if epoch == 1 and step == 2:
                break
        epochs.append(seen)
    loader.shutdown()
    assert epochs[0] == epochs[2] != sorted(epochs[0])
    assert len(epochs[1]) == 12


class Counting(ReadingServiceInterface):
    """Puts a pipe of its own in front of every map."""

    def initialize(self, datapipe: Any) -> Any:
        graph = traverse_dps(datapipe)
        for found in find_dps(graph, Mapper):
            graph = replace_dp(graph, found, Applier(found, lambda x: x + 100))
        return next(iter(graph.values()))[0]

    def finalize(self) -> None:
        pass


def test_a_service_and_adapters_of_ones_own() -> None:
    pipe = IterableWrapper(range(6)).shuffle().map(double)
    loader: Any = DataLoader2(pipe, datapipe_adapter_fn=[Shuffle(False)], reading_service=Counting())
    assert list(loader) == [100, 102, 104, 106, 108, 110]
    samples = iter(loader)
    samples.limit(2)
    assert (list(samples), list(samples)) == ([100, 102], [])
    samples.resume()
    assert list(samples) == [104, 106]
    assert sorted(pipe) == [0, 2, 4, 6, 8, 10]  # the loader works on a copy
    loader.shutdown()


class Letters(MapDataPipe[str]):
    def __getitem__(self, index: int) -> str:
        return "abcdef"[index]

    def __len__(self) -> int:
        return 6


def test_tables_of_samples() -> None:
    both = Letters().zip(SequenceWrapper(range(6)).map(double))
    assert both[2] == ("c", 4)
    assert list(both.batch(4)[1]) == [("e", 8), ("f", 10)]
    torch.manual_seed(0)
    first = list(Letters().shuffle())
    torch.manual_seed(0)
    assert list(Letters().shuffle()) == first != list("abcdef")
    by_key = IterableWrapper([("a", 1), ("b", 2)]).to_map_datapipe()
    assert list(IterableWrapper(["b", "a"]).zip_with_map(by_key, key_fn=str)) == [("b", 2), ("a", 1)]
    loader = data.DataLoader(Letters(), batch_size=3, sampler=data.SequentialSampler(Letters()))
    assert list(loader) == [["a", "b", "c"], ["d", "e", "f"]]
