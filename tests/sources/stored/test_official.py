"""Every format beside its own package: what the official writer wrote, read by the official reader and by ours.

Packages that ask for other versions than ours have environments of their own, those of the benchmarks, and write what
they have read as a pickle (tests under --integrations).
"""

import pickle
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from tests.conftest import RunScript
from tests.depth import depth

COUNTS = depth((0, 1, 40), (0, 1, 2, 40, 1000))


def plain(sample: Any) -> Any:
    """The same for every reader: numbers as Python has them, arrays with type and shape."""
    if isinstance(sample, dict):
        return tuple((name, plain(value)) for name, value in sorted(sample.items()))
    if isinstance(sample, list | tuple):
        return tuple(plain(part) for part in sample)
    if isinstance(sample, np.ndarray):
        return str(sample.dtype), sample.shape, sample.tobytes()
    return sample.item() if isinstance(sample, np.generic) else sample


def multiset(samples: Iterable[Any]) -> "Counter[Any]":
    return Counter(plain(sample) for sample in samples)


def ours(path: Path | str, **options: Any) -> "Counter[Any]":
    """In stored order and shuffled alike."""
    pipe = Pipe.stored(path, **options)
    found = multiset(Loader(pipe))
    assert multiset(Loader(pipe.shuffle())) == found
    return found


def text(number: int) -> str:
    return "é\u2028 x"[: number % 5] * (number % 7)


# (webdataset leaves the archive open.)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("count", COUNTS)
def test_tar_beside_webdataset(tmp_path: Path, count: int) -> None:
    webdataset = pytest.importorskip("webdataset", reason="not installed")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as out:
        for i in range(count):
            out.write({"__key__": f"k{i:05}", "txt": text(i), "cls": i, "seg.bin": bytes([i % 256]) * i})
    if not count:  # (it refuses an archive without samples, we give none)
        assert not ours(tmp_path / "a.tar")
        return
    official = webdataset.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)
    theirs = [
        {"__key__": sample["__key__"], **{f".{name}": data for name, data in sample.items() if name[0] != "_"}}
        for sample in official
    ]
    assert ours(tmp_path / "a.tar") == multiset(theirs)
    assert len(theirs) == count


@pytest.mark.parametrize("count", COUNTS)
def test_tfrecord_beside_tfrecord(tmp_path: Path, count: int) -> None:
    pytest.importorskip("tfrecord", reason="not installed")
    from tfrecord import tfrecord_loader
    from tfrecord.writer import TFRecordWriter

    path = str(tmp_path / "a.tfrecord")
    writer = TFRecordWriter(path)
    for i in range(count):
        writer.write(
            {"n": ([i, -i], "int"), "f": ([i / 4] * (1 + i % 3), "float"), "b": ([bytes([i % 256]) * (i % 9)], "byte")}
        )
    writer.close()
    theirs = [
        {"n": np.asarray(s["n"], np.int64), "f": np.asarray(s["f"], np.float32), "b": [bytes(s["b"])]}
        for s in tfrecord_loader(path, None)
    ]
    assert ours(path) == multiset(theirs)
    assert len(theirs) == count


@pytest.mark.parametrize("group", [1, 13])
@pytest.mark.parametrize("count", [count for count in COUNTS if count])
def test_array_records_beside_array_record(tmp_path: Path, count: int, group: int) -> None:
    module = pytest.importorskip("array_record.python.array_record_module", reason="not installed")
    path = str(tmp_path / "a.array_record")
    writer = module.ArrayRecordWriter(path, f"group_size:{group}")
    for i in range(count):
        writer.write(text(i).encode() * 10)
    writer.close()
    theirs = module.ArrayRecordReader(path).read_all()
    assert ours(path) == multiset(theirs)
    assert len(theirs) == count


@pytest.mark.integrations
@pytest.mark.parametrize("count", COUNTS[1:])
def test_what_datasets_has_saved_comes_as_it_loads_it(tmp_path: Path, count: int) -> None:
    datasets = pytest.importorskip("datasets", reason="not installed")
    datasets.disable_progress_bars()
    features = datasets.Features(
        n=datasets.Value("int32"), text=datasets.Value("string"), some=datasets.Value("float64"),
        label=datasets.ClassLabel(names=["a", "b"]), many=datasets.List(datasets.Value("int64")),
        square=datasets.Array2D((2, 2), "float32"), inner={"x": datasets.Value("bool")},
    )  # fmt: skip
    rows = [
        {"n": i, "text": text(i), "some": None if i % 3 else i / 2, "label": i % 2, "many": [i] * (i % 4),
         "square": [[i, 1], [2, 3]], "inner": {"x": i % 2 == 0}}
        for i in range(count)
    ]  # fmt: skip
    made = datasets.Dataset.from_list(rows, features=features)
    made.shuffle(seed=1).save_to_disk(str(tmp_path / "d"), num_shards=min(3, count))
    theirs = [as_lists(row) for row in datasets.load_from_disk(str(tmp_path / "d"))]
    assert Counter(map(plain, map(as_lists, Loader(Pipe.of(datasets.load_from_disk(str(tmp_path / "d"))))))) == Counter(
        map(plain, theirs)
    )
    assert len(theirs) == count


def as_lists(value: Any) -> Any:
    """Without the types of numpy: `datasets` gives lists."""
    if isinstance(value, dict):
        return {name: as_lists(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return as_lists(value.tolist())
    return [as_lists(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.integrations
def test_a_stream_of_hugging_face_goes_on_by_its_own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="not installed")
    from headrace.sources import huggingface

    monkeypatch.setattr(huggingface, "STATE_EVERY", 7)
    seen = []

    def note(row: Any) -> Any:
        seen.append(row["a"])
        return row

    def stream(length: int = 60) -> Any:
        return datasets.Dataset.from_dict({"a": list(range(length))}).to_iterable_dataset(num_shards=3)

    streams = {
        "plain": stream(), "map": stream().map(lambda row: {"b": row["a"] * 2}), "batch": stream().batch(4),
        "filter": stream().filter(lambda row: row["a"] % 3 != 1), "take": stream().take(33), "skip": stream().skip(11),
        "spread": stream().map(lambda r: {"a": [x for x in r["a"] for _ in "ab"]}, batched=True, batch_size=5),
        "interleave": datasets.interleave_datasets([stream(), stream().map(lambda row: {"a": -row["a"]})]),
        "concatenate": datasets.concatenate_datasets([stream(), stream()]), "repeat": stream().repeat(2),
        "buffer": stream().shuffle(seed=3, buffer_size=10),
    }  # fmt: skip
    for name, data in streams.items():
        whole = list(map(repr, Loader(Pipe.of(data))))
        for stop in range(0, len(whole), depth(11, 1)):
            with Loader(Pipe.of(data)) as loader:
                samples = iter(loader)
                first = [repr(next(samples)) for _ in range(stop)]
                state = loader.state_dict()
            again = Loader(Pipe.of(data))
            again.load_state_dict(state)
            assert first + list(map(repr, again)) == whole, (name, stop)
    with Loader(Pipe.of(stream(6000).map(note))) as loader:
        samples = iter(loader)
        [next(samples) for _ in range(5500)]
        state = loader.state_dict()
    again = Loader(Pipe.of(stream(6000).map(note)))
    again.load_state_dict(state)
    seen.clear()
    assert len(list(again)) == 500
    if huggingface.states_are_exact():
        assert min(seen) >= 4000, "what came long before is not read again"


@pytest.mark.integrations
@pytest.mark.parametrize("count", COUNTS[1:])
def test_lance_beside_lance(tmp_path: Path, count: int) -> None:
    lance = pytest.importorskip("lance", reason="not installed")
    pa = pytest.importorskip("pyarrow", reason="not installed")
    rows = [{"n": i, "text": text(i), "some": None if i % 3 else i / 2, "v": [i, 1.5]} for i in range(count)]
    kinds = pa.schema([("n", "int64"), ("text", "string"), ("some", "float64"), ("v", pa.list_(pa.float32(), 2))])
    path = str(tmp_path / "a.lance")
    lance.write_dataset(pa.Table.from_pylist(rows, kinds), path, max_rows_per_file=17)
    lance.dataset(path).delete("n % 10 = 3")
    pipe = Pipe.stored(path)
    lance.dataset(path).delete("n % 10 = 4")  # (a pipe keeps to its version)
    theirs = lance.dataset(path, version=2).to_table().to_pylist()
    assert Counter(map(plain, map(as_lists, Loader(pipe)))) == Counter(map(plain, theirs))
    assert Counter(map(plain, map(as_lists, Loader(pipe.shuffle())))) == Counter(map(plain, theirs))
    with Loader(pipe.shuffle().batch(7), workers=2) as loader:
        assert sorted(n for batch in loader for n in batch["n"].tolist()) == sorted(row["n"] for row in theirs)


# --- packages in environments of their own ----------------------------------------------------------------------------


def theirs(subject: str, program: str, folder: Path, *requires: str) -> Any:
    """What a program, run by the interpreter of a subject of the benchmarks, has left in `out`."""
    from benchmarks import environments

    pythons, absent = environments.pythons([subject], print)
    if subject in absent:
        pytest.skip(f"not installed: {absent[subject]}")
    home = Path(pythons[subject]).parent.parent
    assert environments.install(home, requires, {}, print) is None
    start = f"import pickle, sys\nsys.path.insert(0, {str(environments.ROOT)!r})\nfolder = {str(folder)!r}\n"
    end = "\nwith open(folder + '/out.pickle', 'wb') as file:\n    pickle.dump(out, file)\n"
    done = subprocess.run(
        [pythons[subject], "-c", start + program + end], capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads((folder / "out.pickle").read_bytes())


MDS = """
from benchmarks.subjects import mosaic_loader
import numpy as np
from streaming import MDSWriter, StreamingDataset
columns = {
    "b": "bytes", "s": "str", "i": "int", "u": "uint8", "f": "float32", "si": "str_int", "sf": "str_float", "j": "json",
    "a": "ndarray", "t": "ndarray:int16", "q": "ndarray:float32:2,2",
}
out = {}
name = folder + "/mds"
with MDSWriter(out=name, columns=columns, size_limit=4096) as writer:
    for i in range(COUNT):
        writer.write({
            "b": bytes([i % 256]) * (i % 30), "s": "é" * (i % 4), "i": -i, "u": np.uint8(i % 256),
            "f": np.float32(i / 3), "si": i, "sf": i / 2, "j": {"x": [i]}, "a": np.arange(i % 7 + 1) + i,
            "t": np.full((2, i % 3 + 1), i, np.int16), "q": np.full((2, 2), i, np.float32),
        })
mosaic_loader.clean_stale_shared_memory()
data = StreamingDataset(local=name, batch_size=1)
out[name] = [dict(data[i]) for i in range(data.num_samples)]
"""


@pytest.mark.integrations
@pytest.mark.timeout(1500)
def test_mds_beside_mosaicml_streaming(tmp_path: Path) -> None:
    found = theirs("mosaic", MDS.replace("COUNT", str(depth(60, 1000))), tmp_path)
    assert len(found) == 1
    for name, samples in found.items():
        assert ours(name) == multiset(samples), name
        assert len(samples) == depth(60, 1000)


MEGATRON = """
import numpy as np, torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
out = {}
for kind in (np.uint16, np.int32):
    name = folder + "/" + np.dtype(kind).name
    builder = IndexedDatasetBuilder(name + ".bin", dtype=kind)
    for i in range(COUNT):
        builder.add_item(torch.arange(i % 13) + i)
        if i % 3 == 0 or i == COUNT - 1:
            builder.end_document()
    builder.finalize(name + ".idx")
    data = IndexedDataset(name)
    out[name + ".bin"] = [np.array(data[i]) for i in range(len(data))]
"""


@pytest.mark.integrations
@pytest.mark.timeout(1500)
def test_tokens_beside_megatron(tmp_path: Path) -> None:
    found = theirs("litdata", MEGATRON.replace("COUNT", str(depth(60, 1000))), tmp_path, "megatron-core==0.16.1")
    assert len(found) == 2
    for name, samples in found.items():
        assert ours(name) == multiset(samples), name
        assert len(samples) == depth(60, 1000)


@pytest.mark.integrations
@pytest.mark.timeout(600)
def test_mutated_files_of_lance_give_an_error_or_what_the_official_reader_gives(
    tmp_path: Path, run_script: RunScript
) -> None:
    """In a process of its own: what ends it would end the test."""
    pytest.importorskip("lance", reason="not installed")
    program = """
        import random, shutil, sys
        from pathlib import Path
        import lance, pyarrow as pa
        from headrace import Loader, Pipe
        home, chance = Path(sys.argv[1]), random.Random(4)
        rows = [{"n": i, "text": "x" * (i % 9)} for i in range(200)]
        lance.write_dataset(pa.Table.from_pylist(rows), str(home / "whole.lance"), max_rows_per_file=64)
        whole = home / "whole.lance"
        files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
        told = wrong = 0
        for number in range(int(sys.argv[2])):
            copy = home / f"{number}.lance"
            shutil.copytree(home / "whole.lance", copy)
            target = copy / chance.choice(files)
            data = bytearray(target.read_bytes())
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
            target.write_bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)
            try:
                found = list(Loader(Pipe.stored(copy)))
            except Exception:
                told += 1
            else:
                wrong += found != lance.dataset(str(copy)).to_table().to_pylist()
            shutil.rmtree(copy)
        print(told, wrong)
    """
    done = run_script(program, tmp_path, depth(40, 500), timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    told, wrong = map(int, done.stdout.split())
    assert told > 0
    assert wrong == 0
