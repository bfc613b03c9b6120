"""Parquet and Arrow files: exact rows at random, few row groups in memory, and what is not asked for is not read."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, BadPipe, SnapshotRefused
from tests.conftest import RunScript
from tests.laws.pipes import KINDS, read, shown

pa = pytest.importorskip("pyarrow", reason="not installed")
pc = pytest.importorskip("pyarrow.compute", reason="not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="not installed")
ds = pytest.importorskip("pyarrow.dataset", reason="not installed")

from headrace.sources.bytes import DamagedFile  # noqa: E402
from headrace.tables import ipc  # noqa: E402
from headrace.tables.column import ArrowColumn  # noqa: E402
from headrace.tables.convert.from_arrow import from_arrow  # noqa: E402
from tests.depth import depth  # noqa: E402
from tests.tables.arrow_types import ARRAYS, HOLES  # noqa: E402

ROWS = 3000
FORMATS = ("parquet", "arrow")


def table(first: int, rows: int) -> Any:
    numbers = np.arange(first, first + rows)
    return pa.table(
        {
            "k": numbers,
            "x": (numbers / 2).astype(np.float32),
            "y": numbers * 3,
            "s": [f"s{i}" for i in numbers],
            "m": pa.array([None if i % 7 == 0 else i for i in numbers.tolist()], pa.int32()),
            "v": pa.array([[i, i + 1] for i in numbers.tolist()], pa.list_(pa.float32(), 2)),
        }
    )


def write(folder: Path, format: str, files: int = 3, group: int = 100, rows: int = ROWS) -> list[str]:
    paths = []
    share = rows // files
    for number in range(files):
        path = folder / f"{number}.{format}"
        part = table(number * share, share)
        if format == "parquet":
            pq.write_table(part, path, row_group_size=group)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, part.schema) as writer:
                writer.write_table(part, max_chunksize=group)
        paths.append(str(path))
    return paths


@pytest.fixture(params=FORMATS)
def pipe(request: pytest.FixtureRequest, tmp_path: Path) -> Pipe[Any]:
    """Files of which about a quarter fits in memory."""
    return getattr(Pipe, request.param)(write(tmp_path, request.param), memory=30_000)  # type: ignore[no-any-return]


@pytest.fixture(params=FORMATS)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Pipe[Any]:
    """The same with fewer row groups: a full shuffle of them reads one anew for most rows."""
    rows = depth(900, ROWS)
    paths = write(tmp_path, request.param, rows=rows)
    return getattr(Pipe, request.param)(paths, memory=10 * rows)  # type: ignore[no-any-return]


def keys(batches: Any, name: str = "k") -> list[int]:
    return [k for batch in batches for k in batch[name].tolist()]


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_come_in_order_and_as_they_were_written(pipe: Pipe[Any]) -> None:
    batches = list(Loader(pipe.batch(250)))
    assert keys(batches) == list(range(ROWS))
    batch = batches[4]
    assert batch["x"].dtype == np.float32
    np.testing.assert_array_equal(batch["y"], batch["k"] * 3)
    np.testing.assert_array_equal(batch["v"], np.stack([batch["k"], batch["k"] + 1], 1))
    assert batch["s"].tolist() == [f"s{k}" for k in batch["k"]]
    assert batch["m"].tolist() == [None if k % 7 == 0 else k for k in batch["k"].tolist()]
    assert not isinstance(batch["k"], np.ma.MaskedArray)


def test_any_row_can_be_had_by_itself(pipe: Pipe[Any]) -> None:
    indexed = pipe.indexed(0, 0)
    assert indexed is not None
    for position in (0, 2999, 1500, 99, 100):
        row = indexed.get(position)
        assert (row["k"], row["s"]) == (position, f"s{position}")
        assert row["m"] == (None if position % 7 == 0 else position)


def test_files_of_every_arrow_type_give_what_a_table_in_memory_gives(tmp_path: Path) -> None:
    joinable = {name: array for name, array in ARRAYS.items() if "union" not in name}  # pyarrow cannot join unions
    for name, array in {**joinable, **{f"{n} with holes": a for n, a in HOLES.items()}}.items():
        whole = pa.table({"x": pa.chunked_array([array, array])})
        path = tmp_path / "one.arrow"
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
                writer.write_table(whole)
        except pa.ArrowInvalid:
            continue  # pyarrow cannot write it
        want = list(Loader(Pipe.of(whole).shuffle().batch(4)))
        got = list(Loader(Pipe.arrow(path).shuffle().batch(4)))
        assert repr(got) == repr(want), name


PAIRS = pa.list_(pa.int8(), 2)
HIDDEN: dict[str, Any] = {
    "numbers of a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array([7, None, 9])),
    "texts of a dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", None])),
    "elements": pa.array([[1, None], [3, 4], [5, 6]], PAIRS),
    "elements of elements": pa.array([[[1, 2], [3, None]], [[3, 4]] * 2, [[5, 6]] * 2], pa.list_(PAIRS, 2)),
    "elements of tensors": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, None], [3, 4], [5, 6]], PAIRS)
    ),
}
"""Arrays that miss something and do not count it."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("kind", ["arrow", "parquet", "dataset", "mapped"])
def test_what_is_missing_inside_is_missing_in_every_kind_of_file(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pa.Table.from_arrays([HIDDEN[name]], schema=pa.schema([pa.field("x", HIDDEN[name].type, nullable=False)]))
    path = tmp_path / f"one.{kind}"
    if ("dictionary" in name and kind == "parquet") or ("tensors" in name and kind == "mapped"):
        return  # they have no such arrays
    if kind == "parquet":
        pq.write_table(whole, path)
    elif kind != "mapped":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_table(whole)
    if kind == "mapped":
        datasets = pytest.importorskip("datasets", reason="not installed")
        monkeypatch.setattr("headrace.tables.stored.datasets.MEMORY", 1)
        pipe = Pipe.of(datasets.Dataset(whole))
    else:
        pipe = Pipe.of(ds.dataset(path, format="feather")) if kind == "dataset" else getattr(Pipe, kind)(path)
    assert repr(list(Loader(pipe.batch(2)))) == repr(list(Loader(Pipe.of(whole).batch(2))))
    with pytest.raises(BadPipe, match=r"torch cannot hold that"):
        list(Loader(pipe.batch(3, as_="torch")))


def test_empty_lists_are_not_missing(tmp_path: Path) -> None:
    for missing in (False, True):
        pq.write_table(pa.table({"x": [[1, 2], [], None if missing else [3]]}), tmp_path / "lists.parquet")
        pipe = Pipe.parquet(tmp_path / "lists.parquet").batch(3, as_="torch")
        if missing:
            with pytest.raises(BadPipe, match=r"'x' is list.* it has missing lists"):
                list(Loader(pipe))
        else:
            assert [x.tolist() for batch in Loader(pipe) for x in batch["x"]] == [[1, 2], [], [3]]


# --- shuffling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quality", [None, 0.1, 0.5, 1])
def test_every_row_comes_once_and_each_epoch_has_its_order(small: Pipe[Any], quality: Any) -> None:
    with Loader(small.select("k", "s").shuffle(quality=quality).batch(64)) as loader:
        epochs = [keys(loader) for _ in range(2)]
    assert all(sorted(epoch) == list(range(len(small))) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_a_shuffled_epoch_reads_every_row_group_about_once(pipe: Pipe[Any]) -> None:
    numbers = pipe.select("k", "x", "y")
    source: Any = numbers.op
    count, hold = len(source.stored.rows), source.units().hold
    assert hold * 2 < count == 30
    keys(Loader(numbers.shuffle(quality=hold / count).batch(32)))
    assert source.table().slots.made <= count + 2 * hold


def test_where_fewer_fit_than_are_open_a_batch_reads_only_those_that_do_not_fit(tmp_path: Path) -> None:
    opened, group = 12, 100
    pipe = Pipe.parquet(write(tmp_path, "parquet"), columns=["k", "y"], memory=22_000)
    slots = pipe.op.table().slots  # type: ignore[attr-defined]
    batches = list(Loader(pipe.shuffle(quality=opened * group / ROWS).batch(120)))
    assert sorted(keys(batches)) == list(range(ROWS))
    assert opened / 2 < slots.count < opened
    assert slots.made <= ROWS // group + len(batches) * (opened - slots.count + 1)


def test_text_that_is_short_in_the_file_and_long_in_memory_is_counted_as_it_lies_in_memory(tmp_path: Path) -> None:
    words = [f"{i % 50} " * 40 for i in range(ROWS)]  # a dictionary in the file: about a tenth
    pq.write_table(pa.table({"k": np.arange(ROWS), "s": words}), tmp_path / "a.parquet", row_group_size=100)
    for memory in (150_000, 2_000_000):
        pipe = Pipe.parquet(tmp_path, memory=memory)
        units = pipe.op.table()  # type: ignore[attr-defined]
        assert ("all 30 row groups fit" in pipe.shuffle().explain()) == (units.hold == 30) == (memory > 1_000_000)
        assert sorted(keys(Loader(pipe.shuffle(quality=units.hold / 30).batch(32)))) == list(range(ROWS))
        assert units.texts.loads == 0
        assert units.slots.made <= 30 + 2 * units.hold


@pytest.mark.parametrize("ranks", [1, 2])
def test_row_groups_with_text_are_read_once_where_memory_holds_twice_what_is_open(tmp_path: Path, ranks: int) -> None:
    words = [f"word {i} " * (i % 9) for i in range(ROWS)]
    lists = [[str(j) for j in range(i % 4)] for i in range(ROWS)]
    pq.write_table(pa.table({"k": np.arange(ROWS), "s": words, "l": lists}), tmp_path / "a.parquet", row_group_size=100)
    size = Pipe.parquet(tmp_path).op.table().slots.size  # type: ignore[attr-defined]
    found = []
    for rank in range(ranks):
        pipe = Pipe.parquet(tmp_path, memory=size * 12)
        shuffled = pipe.shuffle(quality=4 / 30)
        assert "4 of 30 row groups are open" in shuffled.explain()
        assert "memory= holds 8, so each is read once an epoch and rank" in shuffled.explain()
        with Loader(shuffled.batch(32), world=World(rank, ranks)) as loader:
            batches = list(loader)
        units = pipe.op.table()  # type: ignore[attr-defined]
        assert (units.texts.loads, units.slots.made <= 30) == (0, True), units.slots.made
        found += [row for b in batches for row in zip(b["k"].tolist(), b["s"], map(list, b["l"]), strict=True)]
    assert sorted(found) == list(zip(range(ROWS), words, lists, strict=True))


def test_text_longer_than_a_slot_has_room_for_is_kept_by_each_process(tmp_path: Path) -> None:
    words = ["x" * (5000 if 1200 <= i < 1250 else 5) for i in range(ROWS)]  # in none of the row groups looked at
    pq.write_table(pa.table({"k": np.arange(ROWS), "s": words}), tmp_path / "a.parquet", row_group_size=100)
    pipe = Pipe.parquet(tmp_path)
    units = pipe.op.table()  # type: ignore[attr-defined]
    units.text_sizes = (6, 0)
    units._divide(1 << 20, None)
    for batch in Loader(pipe.shuffle(quality=0.3).batch(32)):
        assert batch["s"].tolist() == [words[k] for k in batch["k"]]
    assert units.texts.loads >= 1


@pytest.mark.parametrize("name", [*ARRAYS, *(f"{name} with holes" for name in HOLES)])
def test_what_is_taken_from_a_slot_does_not_look_into_it(name: str) -> None:
    array = ARRAYS[name] if name in ARRAYS else HOLES[name.removesuffix(" with holes")]
    column = from_arrow(array)
    if not isinstance(column, ArrowColumn) or ipc.stays_behind(column.array.type):
        return
    want = column.array.take(pa.array([2, 0, 1])).to_pylist()
    memory = bytearray(ipc.bytes_of({"x": column.array}))
    ipc.store(memoryview(memory), {"x": column.array})
    found = ipc.stored(memoryview(memory))
    assert found is not None
    taken = found["x"].take(pa.array([2, 0, 1]))
    memory[:] = b"\x55" * len(memory)  # as if another unit had come into the slot
    assert taken.to_pylist() == want


def test_explain_says_what_the_quality_comes_to(pipe: Pipe[Any]) -> None:
    numbers = pipe.select("k", "x", "y")
    assert "3 of 30 row groups are open" in numbers.shuffle(quality=0.1).explain()
    assert "fit in memory, so on one rank row groups are read again and again" in numbers.shuffle(quality=0.9).explain()
    assert "makes one be read anew" in numbers.shuffle(quality=1).explain()
    assert "makes one be read anew" in numbers.shuffle().explain()


@pytest.mark.parametrize("quality", [0, 1.5, -1])
def test_a_quality_that_means_nothing_is_refused(quality: float) -> None:
    with pytest.raises(BadOption, match=r"quality"):
        Pipe.of([1, 2]).shuffle(quality=quality)
    with pytest.raises(BadOption, match=r"quality"):
        Pipe.of([1, 2]).shuffle(quality=0.5, window=3)


# --- laws -------------------------------------------------------------------------------------------------------------


EVERYWHERE = [(format, kind) for format in FORMATS for kind in ("thread3", "fork2", "server3", "spawn2")]
SOMEWHERE = [("parquet", "thread3"), ("arrow", "fork2")]


@pytest.mark.parametrize(("small", "kind"), depth(SOMEWHERE, EVERYWHERE), indirect=["small"])
def test_the_stream_is_the_same_on_every_kind_of_worker(small: Pipe[Any], kind: str) -> None:
    shuffled = small.shuffle().map(lambda c: {**c, "r": np.random.rand(len(c["k"]))}, batched=True).batch(50)
    if kind.startswith("thread"):
        shuffled = small.shuffle().batch(50)  # threads do not touch the global generators
    assert read(shuffled, 2, **KINDS[kind]) == read(shuffled, 2)


def test_workers_share_what_they_read(pipe: Pipe[Any]) -> None:
    with Loader(pipe.shuffle(quality=0.4).batch(64), workers=3, start_method="fork") as loader:
        assert sorted(keys(loader)) == list(range(ROWS))
    slots = pipe.op.table().slots  # type: ignore[attr-defined]
    assert slots.made == 0  # by this process
    assert (slots._units >= 0).sum() == slots.count


def test_a_snapshot_is_small_and_loads_anywhere(small: Pipe[Any]) -> None:
    shuffled = small.shuffle()
    order = keys(Loader(shuffled.batch(8), seed=3))
    with Loader(shuffled.batch(8), seed=3, workers=2, start_method="fork") as loader:
        samples = iter(loader)
        got = keys([next(samples) for _ in range(37)])
        text = json.dumps(loader.state_dict())
    assert len(text) <= 1024
    dealt = []
    for rank in range(2):
        with Loader(shuffled.batch(4), seed=3, world=World(rank, 2)) as loader:
            loader.load_state_dict(json.loads(text))
            dealt.append([b["k"].tolist() for b in loader])
    assert got + [k for step in zip(*dealt, strict=True) for batch in step for k in batch] == order


def test_a_snapshot_of_other_row_groups_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = Pipe.parquet(write(tmp_path / "a", "parquet")), Pipe.parquet(write(tmp_path / "b", "parquet", group=70))
    with pytest.raises(SnapshotRefused, match=r"parquet"):
        Loader(two.shuffle().batch(4)).load_state_dict(Loader(one.shuffle().batch(4)).state_dict())


def test_killed_workers_do_not_change_the_stream(small: Pipe[Any]) -> None:
    shuffled = small.shuffle().batch(16)
    want, got = read(shuffled), []
    with Loader(shuffled, seed=3, workers=2, start_method="fork") as loader:
        for i, batch in enumerate(loader):
            got.append(shown(batch))
            if i % depth(10, 40) == 7:
                workers = [w for group in loader._pool.all() for w in group._workers]
                os.kill(workers[i % 2].started.pid, signal.SIGKILL)
        assert loader.stats().retries > 2
    assert got == want


# --- less is read -----------------------------------------------------------------------------------------------------


def test_columns_and_names_and_filters_go_down_to_the_files(pipe: Pipe[Any]) -> None:
    few = pipe.shuffle().filter(pc.field("k") >= 2000).filter(pc.field("s") != "s2500").select("x").rename(x="half")
    assert len(few) == 999
    assert "999 rows" in repr(few)
    batches = list(Loader(few.batch(100)))
    assert all(list(b) == ["half"] for b in batches)
    assert sorted(keys(batches, "half")) == [k / 2 for k in range(2000, 3000) if k != 2500]


def test_a_filter_that_keeps_nothing_leaves_nothing(pipe: Pipe[Any]) -> None:
    assert list(Loader(pipe.filter(pc.field("k") < 0).shuffle().batch(4))) == []


NAN = float("nan")
FLOATS = pc.field("x")
BESIDE_NAN = {
    "more": FLOATS > 1, "not more": ~(FLOATS > 1), "unlike": FLOATS != 2, "like": FLOATS == 2, "nan": FLOATS.is_nan(),
    "inside": pc.field("in", "x") != 2, "of two": (pc.field("k") > 0) & ~(FLOATS < 9),
}  # fmt: skip


@pytest.mark.parametrize("expression", BESIDE_NAN.values(), ids=BESIDE_NAN)
def test_a_filter_keeps_what_it_keeps_of_a_table_where_there_is_nan(expression: Any, tmp_path: Path) -> None:
    groups = [[2.0, NAN, 2.0], [NAN, NAN, NAN], [3.0, 2.0, None], [0.5, NAN, 7.0], [5.0, 5.0, 5.0]]
    x = pa.array([value for group in groups for value in group])
    table = pa.table({"k": range(len(x)), "x": x, "in": pa.StructArray.from_arrays([x], ["x"])})
    pq.write_table(table, tmp_path / "nan.parquet", row_group_size=3)
    want = table.filter(expression)["k"].to_pylist()
    for source in (Pipe.parquet(tmp_path), Pipe.of(ds.dataset(tmp_path))):
        chosen = source.filter(expression)
        assert len(chosen) == len(want)
        assert keys(Loader(chosen.batch(4)), "k") == want


def test_a_filter_after_a_rename_says_what_to_do(pipe: Pipe[Any]) -> None:
    with pytest.raises(BadPipe, match=r"before rename\(\)"):
        pipe.rename(k="key").filter(pc.field("key") > 1)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_wrong_with_files_is_said_when_the_pipe_is_made(format: str, tmp_path: Path) -> None:
    make = getattr(Pipe, format)
    with pytest.raises((BadOption, FileNotFoundError)):
        make(tmp_path / "nothing.here")
    paths = write(tmp_path, format)
    with pytest.raises(BadOption, match=r"no column 'z'; there are: 'k'"):
        make(paths, columns=["z"])
    with pytest.raises(BadOption, match=r"filter.*does not fit"):
        make(paths, filter=pc.field("z") > 1)
    with pytest.raises(BadOption, match=r"memory="):
        make(paths, memory=0)


def test_files_of_different_schemas_are_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.5]}), tmp_path / "2.parquet")
    with pytest.raises(BadOption, match=r"'a' is int64 in .*1.parquet and double in .*2.parquet"):
        Pipe.parquet(tmp_path)


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(100)}), path)
    pipe = Pipe.parquet(path).batch(10)
    pq.write_table(pa.table({"a": range(50)}), path)
    with pytest.raises(DamagedFile, match=r"a\.parquet has changed since the pipe was made"):
        list(Loader(pipe))


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", depth(["process"], ["inline", "thread", "process"]))
def test_memory_stays_within_the_budget_and_a_fifth(kind: str, run_script: RunScript, tmp_path: Path) -> None:
    groups = depth(60, 200)
    rows = 5_000 * groups
    part = {f"c{i}": np.random.default_rng(i).random(rows // groups) for i in range(24)}
    with pq.ParquetWriter(tmp_path / "big.parquet", pa.table(part).schema) as writer:
        for group in range(groups):
            part["c0"] = np.arange(group * rows // groups, (group + 1) * rows // groups, dtype=np.float64)
            writer.write_table(pa.table(part))
    done = run_script(
        """
        import sys
        import numpy as np
        import psutil
        from headrace import Loader, Pipe
        from headrace.engine.policy import Policy

        kind, path, groups, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), 20_000_000

        def used():
            total = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                with open(f"/proc/{process.pid}/smaps_rollup") as file:
                    total += sum(int(line.split()[1]) for line in file if line.startswith(("Pss_Anon", "Pss_Shmem")))
            return total * 1024

        how = {"inline": {}, "thread": {"workers": 2, "kind": "thread"}}
        how["process"] = {"workers": 2, "kind": "process", "start_method": "fork"}
        policy = Policy(window=4, **how[kind])
        pipe = Pipe.parquet(path, memory=budget)
        with Loader.of(pipe.header(40_000).batch(512), policy) as loader:
            for batch in loader:  # what the packages need once is not the data's
                pass
            slots = pipe.op.table().slots
            base = used() - (slots._units >= 0).sum() * slots.size
            peak, seen = 0, np.zeros(5_000 * groups, bool)
        shuffled = pipe.shuffle(quality=12 / groups).batch(512)
        with Loader.of(shuffled, policy) as loader:
            for number, batch in enumerate(loader):
                rows = batch["c0"].astype(np.int64)
                assert not seen[rows].any()
                seen[rows] = True
                if number % 50 == 0:
                    peak = max(peak, used())
        assert seen.all()
        print((peak - base) / budget)
        """,
        kind,
        tmp_path / "big.parquet",
        groups,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 1.2, done.stdout


# --- datasets of others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "csv", "feather"])
def test_a_pyarrow_dataset_with_its_folders_as_columns(format: str, tmp_path: Path) -> None:
    whole = pa.table({"k": np.arange(300), "part": np.arange(300) % 3, "n": pa.array([None, 1, 2] * 100)})
    parts = ds.partitioning(pa.schema([("part", pa.int64())]), flavor="hive")
    ds.write_dataset(whole, tmp_path / "set", format=format, partitioning=parts)
    pipe = Pipe.of(ds.dataset(tmp_path / "set", whole.schema, format=format, partitioning=parts))
    with Loader(pipe.shuffle().batch(50), workers=1, start_method="fork") as loader:
        batches = list(loader)
    assert repr(batches) == repr(list(Loader(pipe.shuffle().batch(50))))
    assert sorted(keys(batches)) == list(range(300))
    for batch in batches:
        np.testing.assert_array_equal(batch["part"], batch["k"] % 3)
        np.testing.assert_array_equal(np.ma.getmaskarray(batch["n"]), batch["k"] % 3 == 0)
    assert len(pipe.filter(pc.field("k") < 10)) == 10


def test_a_pyarrow_dataset_with_a_folder_for_what_is_missing(tmp_path: Path) -> None:
    parts = ds.partitioning(pa.schema([("part", pa.int64())]), flavor="hive")
    ds.write_dataset(pa.table({"k": [0, 1, 2], "part": [7, None, 7]}), tmp_path, format="parquet", partitioning=parts)
    rows = list(Loader(Pipe.of(ds.dataset(tmp_path, partitioning=parts))))
    assert {int(row["k"]): row["part"] for row in rows} == {0: 7, 1: None, 2: 7}


def test_a_pyarrow_dataset_of_files_of_several_row_groups(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"k": np.arange(90)}), tmp_path / f"day={day}" / "a.parquet", row_group_size=20)
    for pipe in (Pipe.of(ds.dataset(tmp_path, partitioning="hive")), Pipe.parquet(tmp_path)):
        assert [(row["day"], row["k"]) for row in Loader(pipe)] == [(day, k) for day in (1, 2) for k in range(90)]
        one = pipe.filter(pc.field("day") == 2)  # all rows of a file, by the name of its folder
        assert [(row["day"], row["k"]) for row in Loader(one)] == [(2, k) for k in range(90)]


def test_a_pyarrow_dataset_in_memory_is_a_frame() -> None:
    assert len(Pipe.of(ds.dataset(table(0, 10)))) == 10


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_hf_dataset_gives_columns_unless_it_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="not installed")
    given = datasets.Dataset.from_dict({"k": list(range(100)), "s": [f"s{i}" for i in range(100)]})
    pipe = Pipe.of(given).shuffle().batch(16)
    got = list(Loader(pipe))
    assert sorted(keys(got)) == list(range(100))
    chosen = Pipe.of(given.select([5, 3, 9])).batch(2)
    assert keys(Loader(chosen)) == [5, 3, 9]
    formatted = Pipe.of(given.with_format("numpy"))
    assert not formatted.columnar
    few = given.with_format(None, columns=["s"])
    assert [*next(iter(Loader(Pipe.of(few))))] == ["s"]
    monkeypatch.setattr("headrace.tables.stored.datasets.MEMORY", 100)
    assert [*next(iter(Loader(Pipe.of(few))))] == ["s"]
    larger = Pipe.of(given)
    assert "memory-mapped" in repr(larger)
    assert sorted(keys(Loader(larger.shuffle().batch(16)))) == list(range(100))


def test_an_order_that_does_not_fit_in_memory_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({"x": np.arange(20_000)}), path, row_group_size=1000)
    roomy, narrow = (Pipe.parquet(path, memory=memory).shuffle(quality=0.5).batch(100) for memory in (10**6, 20_000))
    for pipe, told in ((roomy, 0), (narrow, 1)):
        caplog.clear()
        for _ in range(2):
            next(iter(Loader(pipe)))
        assert sum("read again and again" in record.message for record in caplog.records) == told
    assert "memory=" in caplog.text
    assert "shuffle(quality=" in caplog.text


def test_row_groups_and_files_without_rows_do_not_make_values_missing(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="not installed")
    whole = table(1, 6).drop_columns(["m"])
    for name, parts in {"a": [whole.slice(0, 0), whole, whole.slice(0, 0)], "b": [whole.slice(0, 0)]}.items():
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", whole.schema) as writer:
            for part in parts:
                writer.write_table(part)
    batches = list(Loader(Pipe.parquet(tmp_path).batch(4, as_="torch")))
    assert [k for batch in batches for k in batch["k"].tolist()] == [1, 2, 3, 4, 5, 6]
    assert list(Loader(Pipe.parquet(tmp_path / "b.parquet").batch(4, as_="torch"))) == []


@pytest.mark.parametrize("kind", ["string_view", "binary_view", "extension<arrow.uuid>", "extension<arrow.json>"])
def test_a_filter_of_parquet_works_beside_and_by_columns_that_pyarrow_does_not_compare(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [0, 1, 2], "v": HOLES[kind]}), path, row_group_size=2)
    given = HOLES[kind].to_pylist()
    for expression, left in ((pc.field("k") > 0, [1, 2]), (pc.field("v").is_valid(), [0, 2])):
        pipe = Pipe.parquet(path).filter(expression)
        batch = next(iter(Loader(pipe.batch(3, as_="arrow"))))
        assert batch["k"].to_pylist() == left
        assert batch["v"].to_pylist() == [given[k] for k in left]
        assert batch["v"].type == HOLES[kind].type
        assert len(pipe) == 2


def test_a_filter_of_files_refuses_columns_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [0, 1], "b": [5.0, float("nan")], "s": [{"x": 1}, {"x": 2}]}), path)
    pipe = Pipe.parquet(path).select("b", "a", "s")
    for number in (pc.field(0), pc.field((2, "x"))):
        with pytest.raises(BadOption, match="by its number: write its name"):
            pipe.filter(number == 1)
    assert len(pipe.filter(pc.field(("s", 0)) == 1)) == 1


def test_a_column_that_is_selected_twice_is_there_once(small: Pipe[Any]) -> None:
    assert list(next(iter(Loader(small.select("y", "k", "y").batch(2))))) == ["y", "k"]
