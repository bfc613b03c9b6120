"""`headrace snapshot`: what a saved state says, in words."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.snapshot import place
from headrace.cli.subject import find
from headrace.engine.feeds.counted import Counted
from headrace.engine.feeds.counter import Finished
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import JobPlace, RunPlace, plain_epoch_place
from headrace.errors import SnapshotRefused
from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.plan.reach import Reach
from headrace.plan.world import World
from tests.cli.subjects import TEXT
from tests.cli.subjects import forgotten as forgotten
from tests.conftest import RunScript
from tests.ranks.together import together


def save(path: Path, loader: Loader[Any], batches: int) -> Path:
    epoch = iter(loader)
    list(islice(epoch, batches))
    path.write_text(json.dumps(loader.state_dict()))
    return path


def test_a_snapshot_is_shown_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "state.json", Loader(Pipe.of(range(100)).shuffle().batch(8), seed=3), 4)
    assert main(["snapshot", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "seed 3, epoch 0" in out
    assert "at sample 32" in out
    assert out.count("op ") == 3


def test_with_the_pipe_ops_get_names_and_the_snapshot_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shown.py"
    file.write_text(TEXT)
    path = save(tmp_path / "state.json", Loader(Pipe.of(range(30)).batch(8)), 2)
    assert main(["snapshot", "show", str(path), "--pipe", f"{file}:pipe"]) == 1
    assert "does not fit" in capsys.readouterr().out
    other = save(tmp_path / "other.json", Loader(Pipe.of(range(30)).map(abs)), 2)
    assert main(["snapshot", "show", str(other), "--pipe", f"{file}:singles", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["refused"].startswith("this snapshot is of another pipe: op 1")


def test_snapshots_of_a_counter_and_of_ranks_that_counted_fit_their_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shared.py"
    file.write_text(
        "from headrace import Loader, Pipe\n"
        "def some(x): return x % 3 > 0\n"
        "pipe = Pipe.of(range(60)).filter(some)\n"
        "counted = Loader(Pipe.of(range(60)).batch(4), sharding='dynamic')\n"
    )
    pipe, counted = find(f"{file}:pipe").pipe, find(f"{file}:counted").target
    assert pipe is not None

    def three_steps(world: World) -> Any:
        with Loader(pipe, world=world, workers=1, kind="thread") as loader:
            assert len([x for _, x in zip(range(3), loader, strict=False)]) == 3
            return loader.state_dict()

    by_counts = tmp_path / "counts.json"
    by_counts.write_text(json.dumps(together(2, three_steps, monkeypatch)[0]))
    dynamic = save(tmp_path / "dynamic.json", counted, 2)
    counted.close()
    for path, name in ((by_counts, "pipe"), (dynamic, "counted")):
        assert main(["snapshot", "show", str(path), "--pipe", f"{file}:{name}"]) == 0, capsys.readouterr().out


def test_a_snapshot_of_the_main_program_fits_the_same_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run_script: RunScript
) -> None:
    file, path = tmp_path / "trained.py", tmp_path / "state.json"
    file.write_text(TEXT)
    main_part = f"\nimport json\nnext(iter(loader))\njson.dump(loader.state_dict(), open({str(path)!r}, 'w'))\n"
    done = run_script(TEXT.partition("if __name__")[0] + main_part)
    assert done.returncode == 0, done.stderr
    assert main(["snapshot", "show", str(path), "--pipe", f"{file}:loader"]) == 0
    assert f"fits {file}:loader" in capsys.readouterr().out


def test_two_snapshots_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loader() -> Loader[Any]:
        return Loader(Pipe.of(range(100)).shuffle().batch(8), seed=3)

    one, same = save(tmp_path / "a.json", loader(), 4), save(tmp_path / "b.json", loader(), 4)
    later = save(tmp_path / "c.json", loader(), 6)
    other = save(tmp_path / "d.json", Loader(Pipe.of(range(100)).batch(8), seed=4), 4)
    assert main(["snapshot", "diff", str(one), str(same)]) == 0
    assert "the same place" in capsys.readouterr().out
    assert main(["snapshot", "diff", str(one), str(later)]) == 1
    assert capsys.readouterr().out == "place: sample 32 | sample 48\n"
    assert main(["snapshot", "diff", str(one), str(other), "--json"]) == 1
    names = [name for name, _, _ in json.loads(capsys.readouterr().out)["differences"]]
    assert names == ["seed", "op 1", "op 2"]


@pytest.mark.parametrize(
    ("pipe", "words"),
    [
        (lambda: Pipe.of(range(100)), "sample 0, and 3 more outputs of the ticket there"),
        (lambda: Pipe.of(lambda: iter(range(100))).batch(8), "group 3 (sample 24), read from"),
        (lambda: Pipe.of(range(100)).filter(bool).batch(8), "group 3 (sample 24), read from sample"),
        (
            lambda: Pipe.of(range(100)).sharding_filter().filter(bool).batch(8).enumerate(),
            "3 emitted by the last op in the consumer; below it: group 3",
        ),
    ],
)
def test_every_kind_of_place_is_told_in_words(tmp_path: Path, pipe: Callable[[], Pipe[Any]], words: str) -> None:
    path = save(tmp_path / "state.json", Loader(pipe()), 3)
    assert words in place(json.loads(path.read_text())["at"])


def test_before_the_first_batch_it_stands_at_the_start(tmp_path: Path) -> None:
    path = save(tmp_path / "state.json", Loader(Pipe.of(range(10))), 0)
    assert place(json.loads(path.read_text())["at"]) == "the start of the epoch"


@pytest.mark.parametrize("at", [5, [1], {"kind": "q", "place": 0}, "text", {"kind": "run", "place": []}])
def test_a_place_that_makes_no_sense_is_shown_as_it_is(at: Any) -> None:
    assert place(at).startswith("a place that this version cannot read")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "is not JSON"),
        (b"\x80\x02torch", "this is not text; this command reads snapshots of Loader and DataLoader2 as JSON"),
        ("[" * 200_000, "is not JSON"),
        ("[]", "is not a snapshot"),
        ('{"seed": 1}', "no version, epoch, at, pipe in it"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused(
    tmp_path: Path, text: str | bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["snapshot", "show", str(path)]) == 2
    assert words in capsys.readouterr().err
    assert main(["snapshot", "show", str(tmp_path / "no.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_state_of_a_dataloader2_is_shown_as_that_of_the_loader_inside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace import DataLoader2, IterableWrapper

    loader = DataLoader2(IterableWrapper(range(10)).batch(2))
    next(iter(loader))
    path = tmp_path / "state.json"
    path.write_text(json.dumps(loader.state_dict()))
    assert main(["snapshot", "show", str(path)]) == 0
    assert "  at sample 2\n" in capsys.readouterr().out


def test_the_places_of_several_ranks_have_words() -> None:
    finished = Finished(((0, 64), (128, 160)), ((((160, 192),), 3),))
    assert place(plain_epoch_place(RunPlace(finished))) == "96 samples of blocks that are finished, 1 blocks begun"
    counted = Counted((Reach(0, 1, 40, 0),))
    assert place(plain_epoch_place(RunPlace(Regrouped(counted, 0, 32, 8)))) == (
        "group 8 (sample 32), read from position 40"
    )
    own = Counted((Reach(0, 2, 40, 3), Reach(1, 2, 61, 0)))
    assert place(plain_epoch_place(RunPlace(Regrouped(own, 0, 32, 8)))) == (
        "group 8 (sample 32), read from position 40, and what 2 ranks have delivered above it"
    )
    assert place(JobPlace(4, (RunPlace(Position(8)), RunPlace(Position(16)))).plain()) == (
        "4 steps after 2 ranks stood at: sample 8; sample 16"
    )


TURNS = """
{"version": 2, "pipe": ["c3aa51bf", "651c75a2", "400ff465"], "seed": 3, "epoch": 0, "at": {"kind": "run",
"place": {"kind": "regrouped", "source": {"kind": "turns", "rest": {"start": 0, "levels": [], "atoms": []}, "block": 2,
"progress": [[5, 0], [4, 1]]}, "offset": 0, "base": 6, "number": 3, "ranks": 1}, "gone": 0, "skipped": 0, "turn": 0,
"ops": []}, "ops": ["of(range(0, 60))", "filter(keep)", "batch(2)"]}
"""
VOTED = """
{"version": 2, "pipe": ["17344a95", "8726fced", "72ad0df5", "6714cbc1"], "seed": 3, "epoch": 0, "at": {"kind": "voted",
"steps": 3, "ranks": [{"kind": "run", "place": null, "gone": 0, "skipped": 0, "turn": 0, "ops": []}, {"kind": "run",
"place": null, "gone": 0, "skipped": 0, "turn": 0, "ops": []}]}, "ops": ["of(stream)", "sharding_filter()",
"filter(keep)", "batch(2)"], "batches": [2]}
"""


def keep(x: int) -> bool:
    return x % 3 > 0


def stream() -> Any:
    return iter(range(60))


@pytest.mark.parametrize("kind", ["turns", "voted"])
def test_snapshots_of_several_ranks_of_the_version_before_are_refused_with_the_reason(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = json.loads(TURNS if kind == "turns" else VOTED)
    pipe = Pipe.of(range(60)) if kind == "turns" else Pipe.of(stream).sharding_filter()
    for ranks in (1, 2):
        with Loader(pipe.filter(keep).batch(2), seed=3, world=World(rank=0, ranks=ranks)) as loader:
            fingerprints = loader.state_dict()["pipe"]  # (these name the module of a function)
            with pytest.raises(SnapshotRefused, match=r"of headrace 0\.2, on several ranks .* begin the next epoch"):
                loader.load_state_dict({**state, "pipe": fingerprints})
            # As the message says:
            loader.load_state_dict({**state, "pipe": fingerprints, "at": None, "epoch": 1})
            assert loader.epoch == 1
    file = tmp_path / "state.json"
    file.write_text(json.dumps(state))
    assert main(["snapshot", "show", str(file)]) == 0
    assert "a place that this version cannot read" in capsys.readouterr().out
