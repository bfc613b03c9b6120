"""`on_error="skip"` inside readers of files and before ops that hold samples: one bad record goes alone."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.policy import Budget
from headrace.errors import TooManyErrors
from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.pipe import cursor
from headrace.pipe.graph import Pipe

GOOD = [json.dumps({"n": n}).encode() for n in range(6)]


def written(folder: Path, name: str, lines: list[bytes]) -> str:
    (folder / name).write_bytes(b"\n".join(lines) + b"\n")
    return str(folder / name)


def shard(folder: Path, name: str, keys: list[str]) -> Path:
    with tarfile.open(folder / name, "w") as archive:
        for key in keys:
            info = tarfile.TarInfo(f"{key}.txt")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
    return folder / name


def bad_line(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    paths = [written(folder, "0.jsonl", [*GOOD[:2], b"{bad", GOOD[2]]), written(folder, "1.jsonl", GOOD[3:])]
    return Pipe.of(paths).open_files("rb").parse_jsonl(), [{"n": n} for n in range(6)], 1


def bad_text(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    path = written(folder, "0.txt", [b"a", b"\xff", b"b", b"\xfe\xff", b"c"])
    return Pipe.of([path]).open_files("rb").readlines(decode=True, return_path=False), ["a", "b", "c"], 2


def bad_text_of_a_text_file(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    # Such a file is decoded in blocks: what is behind the bad byte cannot be read.
    paths = [written(folder, "0.txt", [b"\xff"]), written(folder, "1.txt", [b"a", b"b"])]
    return Pipe.of(paths).open_files("r").readlines(return_path=False), ["a", "b"], 1


def bad_row(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    path = written(folder, "0.csv", [b"a,b", b"1,2", b"\xff,3", b'"x"y,4', b"5,6"])
    return Pipe.of([path]).open_files("rb").parse_csv(strict=True), [["a", "b"], ["1", "2"], ["5", "6"]], 2


def bad_row_of_dicts(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    paths = [written(folder, "0.csv", [b"a,b", b"\xff,3", b"1,2"]), written(folder, "1.csv", [b"\xff", b"1", b"2"])]
    return (
        Pipe.of(paths).open_files("rb").parse_csv_as_dict(),
        [{"a": "1", "b": "2"}],
        3,
    )  # two lines, and the file without names


def missing_file(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    paths = [written(folder, "0.jsonl", GOOD[:2]), str(folder / "missing"), written(folder, "1.jsonl", GOOD[2:])]
    return Pipe.of(paths).open_files("rb").parse_jsonl(), [{"n": n} for n in range(6)], 1


def broken_shard(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    first = shard(folder, "0.tar", ["a", "b", "c"])
    data = bytearray(first.read_bytes())
    data[2 * 1024] ^= 1  # the header of the third member
    first.write_bytes(data)
    shard(folder, "1.tar", ["d"])
    pipe = Pipe.shards([str(first), str(folder / "1.tar")]).map(lambda sample: sample["__key__"])
    return pipe, ["a", "d"], 1  # b may have lost a file


def twice_in_a_shard(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    pipe = Pipe.shards([str(shard(folder, "0.tar", ["a", "b", "b", "c"]))]).map(lambda sample: sample["__key__"])
    return pipe, ["a", "c"], 1


def bad_sample_of_a_file(folder: Path) -> tuple[Pipe[Any], list[Any], int]:
    def fragile(document: Any) -> Any:
        return document if document["n"] != 1 else 1 / 0

    pipe = Pipe.of([written(folder, "0.jsonl", GOOD)]).open_files("rb").parse_jsonl().map(fragile)
    return pipe, [{"n": n} for n in (0, 2, 3, 4, 5)], 1


Case = Callable[[Path], tuple[Pipe[Any], list[Any], int]]
CASES: list[Case] = [
    bad_line, bad_text, bad_text_of_a_text_file, bad_row, bad_row_of_dicts, missing_file, broken_shard,
    twice_in_a_shard, bad_sample_of_a_file,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.filterwarnings("ignore:Unable to extract")
def test_a_bad_record_is_left_out_and_the_rest_of_its_file_is_read(case: Case, streamed: bool, tmp_path: Path) -> None:
    pipe, want, bad = case(tmp_path)
    if streamed:
        pipe = pipe.cycle(1).batch(1).unbatch()
    for how in ({}, {"workers": 2, "kind": "thread"}):
        quarantine = tmp_path / "bad.jsonl"
        with Loader(pipe, on_error="skip", quarantine=quarantine, **how) as loader:
            assert list(loader) == want, how
            assert loader.stats().skips == bad
        entries = [json.loads(line) for line in quarantine.read_text().splitlines()]
        quarantine.unlink()
        assert len([entry for entry in entries if "error" in entry]) == bad
    with pytest.raises(Exception, match=r".+"), Loader(pipe) as loader:
        list(loader)


def fragile(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"bad {x}")
    return x


HOLDING = {
    "a buffered shuffle": lambda pipe: pipe.shuffle(buffer_size=5),
    "a windowed shuffle of a stream": lambda pipe: pipe.filter(bool).shuffle(window=4),
    "groupby": lambda pipe: pipe.groupby(lambda x: x % 3, group_size=2, buffer_size=8),
    "a cycle": lambda pipe: pipe.shuffle(buffer_size=3).cycle(2),
}


@pytest.mark.parametrize("name", HOLDING)
def test_a_map_before_an_op_that_holds_samples_may_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "CHECKPOINT", 4)
    pipe = HOLDING[name](Pipe.of(lambda: iter(range(40))).map(fragile))
    with Loader(pipe, on_error="skip", seed=3) as loader:
        whole = list(loader)
        skips = loader.stats().skips
    flat = [x for sample in whole for x in (sample if isinstance(sample, list) else [sample])]
    turns = 2 if name == "a cycle" else 1
    good = [x for x in range(40) if x % 7 != 3]
    assert sorted(flat) == sorted((good if "window" not in name else good[1:]) * turns)
    assert skips == 6 * turns
    for at in range(0, len(whole), 3):
        first = Loader(pipe, on_error="skip", seed=3)
        batches = iter(first)
        front = [next(batches) for _ in range(at)]
        again = Loader(pipe, on_error="skip", seed=3)
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        rest = list(again)
        assert digest(front + rest) == digest(whole)


def test_what_was_left_out_before_a_snapshot_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.program.STRAND_BLOCK", 4)
    pipe = Pipe.of(lambda: iter(range(60))).map(fragile).shuffle(buffer_size=5)
    whole = Loader(pipe, on_error="skip", seed=3)
    assert len(list(whole)) + whole.stats().skips == 60
    first = Loader(pipe, on_error="skip", seed=3)
    batches = iter(first)
    front = [next(batches) for _ in range(30)]
    again = Loader(pipe, on_error="skip", seed=3)
    again.load_state_dict(first.state_dict())
    assert len(front) + len(list(again)) + again.stats().skips <= 60


BATCHED: dict[str, Callable[[Pipe[Any]], Pipe[Any]]] = {
    "shuffled": lambda pipe: pipe.shuffle(),
    "numbered": lambda pipe: pipe.enumerate().map(lambda pair: pair[1]),
    "repeated": lambda pipe: pipe.cycle(1),
    "cut": lambda pipe: pipe.header(100),
    "batched again": lambda pipe: pipe.batch(2).unbatch(),
    "mixed": lambda pipe: pipe.mix(Pipe.of([[3]])),
    "followed": lambda pipe: pipe.concat(Pipe.of([[3]])),
}


@pytest.mark.parametrize("name", BATCHED)
def test_of_a_batch_that_other_ops_put_elsewhere_only_the_bad_sample_is_left_out(name: str, tmp_path: Path) -> None:
    pipe = BATCHED[name](Pipe.of(range(40)).map(fragile).batch(4))
    for how in ({}, {"workers": 2, "kind": "thread"}):
        with Loader(pipe, on_error="skip", seed=3, **how) as loader:
            got = [x for batch in loader for x in batch if x != 3]
            skips = loader.stats().skips
        assert sorted(got) == [x for x in range(40) if x % 7 != 3]
        assert skips == 6


def test_a_batch_of_which_nothing_is_left_is_left_out() -> None:
    with Loader(Pipe.of([3, 10, 1, 2]).map(fragile).batch(2).shuffle(), on_error="skip") as loader:
        assert list(loader) == [[1, 2]]
        assert loader.stats().skips == 2


def test_batches_that_are_zipped_are_not_shortened() -> None:
    """The samples of one would stand beside those of other numbers."""
    bad = Pipe.of(range(8)).map(fragile).batch(2)
    with Loader(bad.zip(Pipe.of(range(8)).batch(2)), on_error="skip") as loader:
        assert list(loader) == [([0, 1], [0, 1]), ([4, 5], [4, 5]), ([6, 7], [6, 7])]


@pytest.mark.parametrize("how", [{}, {"workers": 2, "kind": "thread"}])
def test_what_fails_in_the_consumer_is_left_out_counted_and_listed(how: dict[str, Any], tmp_path: Path) -> None:
    """Ops behind one that must see the whole stream after work was divided run there."""
    divided = Pipe.of(lambda: iter(range(60))).sharding_filter().filter(lambda x: x % 5 > 0)
    pipe = divided.shuffle(buffer_size=5).map(fragile).batch(3)
    with Loader(pipe, on_error="skip", seed=3, quarantine=tmp_path / "bad.jsonl", **how) as loader:
        whole = list(loader)
        assert loader.stats().skips == 7
    assert sorted(x for batch in whole for x in batch) == [x for x in range(60) if x % 5 > 0 and x % 7 != 3]
    entries = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [entry["op"] for entry in entries if "error" in entry] == ["map(fragile)"] * 7
    for at in range(0, len(whole), 4):
        first = Loader(pipe, on_error="skip", seed=3, **how)
        batches = iter(first)
        front = [next(batches) for _ in range(at)]
        state = json.loads(json.dumps(first.state_dict()))
        again = Loader(pipe, on_error="skip", seed=3)
        again.load_state_dict(state)
        assert front + list(again) == whole
        assert first.stats().skips + again.stats().skips == 7
        first.close()
    with pytest.raises(TooManyErrors, match=r"3 samples have failed.*map\(fragile\)"):
        list(Loader(pipe, on_error=Budget(count=2), seed=3, **how))


def test_a_branch_that_is_zipped_is_not_shortened() -> None:
    """Leaving out one half of a pair would pair all that follow with the wrong partners."""
    numbers = Pipe.of(lambda: iter(range(20)))
    zipped = numbers.zip(Pipe.of(lambda: iter(range(20))).map(fragile))
    with Loader(zipped, on_error="skip") as loader, pytest.raises(ValueError, match="bad 3"):
        list(loader)


def test_values_drawn_by_position_do_not_move_when_a_sample_is_left_out() -> None:
    from headrace import rng

    def drawn(x: int) -> tuple[int, float]:
        return fragile(x), rng().random()

    def careful(x: int) -> tuple[int, float]:
        return x, rng().random()

    stream = Pipe.of(lambda: iter(range(20)))
    with Loader(stream.map(careful).shuffle(buffer_size=1), seed=3) as loader:
        want = dict(loader)
    with Loader(stream.map(drawn).shuffle(buffer_size=1), seed=3, on_error="skip") as loader:
        got = dict(loader)
    assert got == {x: value for x, value in want.items() if x % 7 != 3}
