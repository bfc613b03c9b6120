"""Autosave: a run that was cut anywhere goes on where the last snapshot was written, and a full disk costs no batch."""

import json
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from headrace import Autosave, Loader, Pipe, World
from headrace.device import ahead
from headrace.errors import BadOption, SnapshotRefused
from tests.conftest import RunScript
from tests.laws.pipes import Numbers, drawn

PIPE = Pipe.of(Numbers(50)).shuffle().map(drawn).batch(4)


def test_a_new_loader_goes_on_where_the_last_snapshot_was_written(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    whole = [repr(b) for b in Loader(PIPE, seed=1)]
    with Loader(PIPE, seed=1, autosave=Autosave(path, every=3), workers=2) as loader:
        batches = iter(loader)
        got = [repr(next(batches)) for _ in range(8)]
    with Loader(PIPE, seed=1, autosave=Autosave(path, every=3)) as loader:
        rest = [repr(b) for b in loader]
    assert got[:6] + rest == whole
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("every", [1, 2, 3, 100])
@pytest.mark.parametrize("held", [1, 2, 5])
def test_batches_that_are_on_their_way_to_a_device_are_not_counted_as_delivered(
    every: int, held: int, tmp_path: Path
) -> None:
    pipe = Pipe.of(list(range(40))).batch(4).collate()
    for stop in range(1, 12):
        path = tmp_path / f"{stop}.json"
        with Loader(pipe, autosave=Autosave(path, every=every)) as loader:
            got = [batch.tolist() for _, batch in zip(range(stop), ahead(loader, "cpu", held), strict=False)]
        with Loader(pipe, autosave=Autosave(path, every=every)) as loader:
            if loader.epoch == 0:
                rest = [batch.tolist() for batch in ahead(loader, "cpu", held)]
                again = len(got) + len(rest) - 10
                assert 0 <= again <= every + held
                assert got + rest[again:] == [list(range(i, i + 4)) for i in range(0, 40, 4)]
            else:
                assert len(got) == 10


def test_a_broken_file_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    path.write_text(json.dumps({"version": 1})[:-3])
    with pytest.raises(SnapshotRefused, match=r"place\.json"):
        Loader(PIPE, autosave=path)


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b"[" * 100_000, b"[]", b"{}", b'{"epoch": 0, "attempt": [1]}'])
def test_any_other_content_is_refused_too(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    path.write_bytes(content)
    with pytest.raises(SnapshotRefused, match=r"place\.json|not a whole snapshot"):
        Loader(PIPE, autosave=path)


def test_a_plain_snapshot_that_somebody_put_there_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    with Loader(PIPE, seed=1) as loader:
        batches = iter(loader)
        whole = [next(batches)]
        path.write_text(json.dumps(loader.state_dict()))
        whole += batches
    with Loader(PIPE, seed=1, autosave=path) as loader:
        assert list(loader) == whole[1:]


def test_epochs_shorter_than_the_distance_between_snapshots_are_saved_too(tmp_path: Path) -> None:
    with Loader(PIPE, autosave=Autosave(tmp_path / "a.json", every=20)) as loader:
        for _ in range(3):
            list(loader)
    saved = json.loads((tmp_path / "a.json").read_text())
    assert (saved["epoch"], saved["steps"], saved["since"]) == (3, 0, 0)


def test_a_missing_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="make it first"):
        Loader(PIPE, autosave=tmp_path / "no" / "place.json")


FULL = """
import json, logging, resource, sys
from headrace import Autosave, Loader, Pipe

logging.basicConfig(format="%(message)s", stream=sys.stdout)
path = "place.json"
pipe = Pipe.of(list(range(60))).batch(3)
whole = list(Loader(pipe))

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

loader = Loader(pipe, autosave=Autosave(path, every=4))
got, told = [], []
for step, batch in enumerate(loader, 1):
    got.append(batch)
    told.append(bool(loader.stats().autosave))
    saved = json.load(open(path))
    if step < 6 or step > 15:
        assert saved["steps"] + saved["since"] == step
    if step == 5:
        room(4)
    if step == 14:
        assert saved["steps"] == 4, saved
        assert "place.json" in loader.stats().autosave and "large" in loader.stats().autosave
        room(resource.RLIM_INFINITY)
assert got == whole, "no batch is lost"
assert told == [5 < step < 16 for step in range(1, 21)], told
"""


def test_a_full_disk_costs_no_batch_keeps_the_last_whole_file_and_is_told(
    run_script: RunScript, tmp_path: Path
) -> None:
    done = run_script(FULL)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py"] == ["place.json"]
    said = done.stdout.splitlines()
    assert len(said) == 2, said
    assert re.match(r"place\.json: no snapshot could be written \(.*too large.*the one after 4 steps is kept", said[0])
    assert said[1] == "place.json is written again"


KILLED = """
import os, pathlib, shutil, signal, sys
from headrace import Autosave, Loader, Pipe
from headrace.sources import atomic

if sys.argv[1] == "beside its place":
    atomic._NAMELESS = 0
rooms = tuple(os.sep + name for name in ("saver.py", "atomic.py", "lock.py"))
pipe = Pipe.of(list(range(9))).batch(3)
whole = list(Loader(pipe))
folder = pathlib.Path("saved")


def start():
    return Loader(pipe, autosave=Autosave(folder / "place.json", every=2))


def killed_at(call):
    def count(frame, event, _):
        nonlocal call
        if event == "c_call" and frame.f_code.co_filename.endswith(rooms):
            call -= 1
            if not call:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    with start() as loader:
        for batch in loader:
            os.write(told, bytes(batch[:1]))


code, call, left = -9, 0, set()
while code == -9:
    call += 1
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    delivered, told = os.pipe()
    if not (pid := os.fork()):
        killed_at(call)
        os._exit(0)
    os.close(told)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(delivered, "rb") as got:
        steps = len(got.read())
    beside = {path.name for path in folder.iterdir()} - {"place.json"}
    assert len(beside) <= 1 and all(name.endswith(".part") for name in beside), beside
    left |= {bool(beside)}
    with start() as loader:
        assert {path.name for path in folder.iterdir()} <= {"place.json"}, "removed when a loader is made"
        if code == -9:
            rest = [] if loader.epoch else list(loader)
            done = len(whole) - len(rest)
            assert steps - 3 <= done <= steps + 1 and rest == whole[done:], (call, steps, rest)
print(call, left)
"""


@pytest.mark.parametrize("way", ["without a name", "beside its place"])
def test_a_kill_at_any_call_leaves_a_whole_snapshot_and_nothing_that_the_next_start_does_not_remove(
    way: str, run_script: RunScript
) -> None:
    done = run_script(KILLED, way)
    assert done.returncode == 0, done.stderr
    calls, left = done.stdout.split(" ", 1)
    assert int(calls) > 40
    assert "True" in left, "a file that stands beside its place was met"


# --- what is done again after a crash -------------------------------------------------------------------------------

HUNDRED = Pipe.of(Numbers(100)).shuffle().batch(4)


def test_steps_after_the_last_snapshot_are_counted_in_place_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "place.json"
    expected = [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2), (6, 0), (6, 1)]
    with Loader(HUNDRED, autosave=Autosave(path, every=3)) as loader:
        for counts, _ in zip(expected, loader, strict=False):
            text = path.read_text()
            assert (json.loads(text)["steps"], json.loads(text)["since"]) == counts
    caplog.set_level(logging.INFO)
    with Loader(HUNDRED, autosave=Autosave(path, every=3)) as loader:
        assert caplog.messages == [
            f"{path}: epoch 0 goes on after step 6; 1 steps that were delivered after it are done again"
        ]
        assert caplog.records[0].levelno == logging.WARNING
        assert len(list(loader)) == 25 - 6
    saved = json.loads(path.read_text())
    assert (saved["epoch"], saved["steps"]) == (1, 0)


def test_nothing_is_warned_about_where_nothing_is_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "place.json"
    for _ in range(2):
        with Loader(HUNDRED, autosave=Autosave(path, every=1)) as loader:
            next(iter(loader))
    assert not caplog.messages


# --- files of headrace 0.2 --------------------------------------------------------------------------------------------


def written_by_0_2(state: dict[str, Any], ranks: int = 1) -> str:
    """What an autosave of headrace 0.2 wrote after four steps of an epoch, two steps before it was killed."""
    attempt = {"rank": 0, "made": 4, "epoch": 0, "at": None, "steps": 0, "ranks": ranks, "job": "c5b3a0d1e2f3"}
    return json.dumps({**state, "steps": 4, "attempt": attempt})[:-1] + f', "since": {2:12}}}'


def test_a_file_that_0_2_wrote_in_one_process_is_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "place.json"
    with Loader(PIPE, seed=1) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        path.write_text(written_by_0_2(loader.state_dict()))
        rest = list(batches)
    with Loader(PIPE, seed=1, autosave=path) as loader:
        assert list(loader) == rest
    assert caplog.messages == [
        f"{path}: epoch 0 goes on after step 4; 2 steps that were delivered after it are done again"
    ]


def test_a_file_that_one_of_several_ranks_wrote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    path.write_text(written_by_0_2(Loader(PIPE).state_dict(), ranks=2))
    with pytest.raises(SnapshotRefused, match=r"place\.json was written by one of 2 ranks"):
        Loader(PIPE, autosave=path)


# --- one process ------------------------------------------------------------------------------------------------------


def test_an_autosave_is_a_value() -> None:
    given = Autosave("run.json", every=20)
    assert given == Autosave("run.json", 20)
    assert hash(given) == hash(Autosave("run.json", 20))
    assert given != Autosave("run.json")
    assert repr(given) == "Autosave(path='run.json', every=20)"
    assert pickle.loads(pickle.dumps(given)) == given
    assert Autosave.of("run.json") == Autosave("run.json", every=1000)
    assert Autosave.of(given) is given
    with pytest.raises(AttributeError):
        given.every = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "says"), [(("run.json", 0), "every"), (("run.json", True), "every"), ((3,), "takes the path of a file")]
)
def test_a_wrong_autosave_is_refused_with_what_to_write(wrong: Any, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        Autosave(*wrong)
    if len(wrong) == 1:
        with pytest.raises(BadOption, match=says):
            Loader(PIPE, autosave=wrong[0])


@pytest.mark.parametrize("sharding", ["static", "dynamic"])
def test_on_ranks_it_is_refused_with_the_lines_to_write(sharding: Any, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="one of 2 ranks") as refused:
        Loader(PIPE, world=World(rank=1, ranks=2), sharding=sharding, autosave=tmp_path / "run.json")
    assert str(refused.value).endswith(
        "save {'model': model.state_dict(), 'loader': loader.state_dict()} on rank 0, and load it on all ranks after a "
        "restart: loader.load_state_dict(checkpoint['loader'])"
    )
    assert list(tmp_path.iterdir()) == []


def test_so_are_the_lines_that_it_names_on_two_ranks_and_then_on_three(tmp_path: Path) -> None:
    """What the refusal says to write is exact."""
    whole = {x for batch in Loader(PIPE, seed=1) for x, *_ in batch}
    got: list[Any] = []
    for rank in range(2):
        with Loader(PIPE, seed=1, world=World(rank=rank, ranks=2)) as loader:
            batches = iter(loader)
            got += [next(batches) for _ in range(3)]
            if rank == 0:
                (tmp_path / "checkpoint").write_text(json.dumps({"loader": loader.state_dict()}))
    checkpoint = json.loads((tmp_path / "checkpoint").read_text())
    for rank in range(3):
        with Loader(PIPE, seed=1, world=World(rank=rank, ranks=3)) as loader:
            loader.load_state_dict(checkpoint["loader"])
            got += list(loader)
    samples = [x for batch in got for x, *_ in batch]
    assert len(samples) == len(whole)
    assert set(samples) == whole


@pytest.mark.parametrize(
    "pipe", [PIPE, Pipe.of(Numbers(12)), Pipe.of(Numbers(40)).filter(lambda x: x % 2 == 0).batch(4)]
)
def test_a_loader_killed_behind_the_last_batch_goes_on_with_the_next_epoch(pipe: Pipe[Any], tmp_path: Path) -> None:
    with Loader(pipe, seed=1, autosave=Autosave(tmp_path / "a.json", every=1)) as loader:
        batches = iter(loader)
        for _ in range(len(list(Loader(pipe, seed=1)))):
            next(batches)
    with Loader(pipe, seed=1, autosave=Autosave(tmp_path / "a.json", every=1)) as loader:
        assert loader.epoch == 1
        assert [repr(b) for b in loader] == [repr(b) for b in Loader(pipe, seed=1, epoch=1)]
    with Loader(pipe, seed=1, autosave=Autosave(tmp_path / "a.json", every=1)) as loader:
        assert loader.epoch == 2, "steps are counted from the start of that one"


@pytest.mark.parametrize("ends", ["short", "drop"])
@pytest.mark.parametrize("options", [{}, {"workers": 2, "kind": "thread"}])
def test_after_a_finished_epoch_the_next_one_begins_and_nothing_is_done_again(
    options: dict[str, Any], ends: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = Pipe.of(range(53)).shuffle().filter(lambda x: x % 5).batch(4)
    file = tmp_path / "run.json"
    for epoch in range(3):
        with Loader(pipe, autosave=Autosave(file, every=4), ends=ends, **options) as loader:
            assert loader.epoch == epoch
            assert len(list(loader)) == 42 // 4 + (ends == "short" and 42 % 4 > 0)
    assert not any("done again" in r.message and r.levelname == "WARNING" for r in caplog.records)
