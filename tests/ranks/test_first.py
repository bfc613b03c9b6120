"""One prepares while the others wait, with real processes that are killed in the middle of it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BadOption, HeadraceError, WorkerStuck
from headrace.plan.world import World
from headrace.ranks import first as module
from headrace.ranks.first import first
from tests.conftest import SRC

# A rank: says that it waits, says when it is inside and whether it is the first, then does what it reads from stdin.
RANK = """
import os, sys
from headrace.ranks.first import first
from headrace.plan.world import World
rank, ranks, per, directory, timeout = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] or None, sys.argv[5]
world = World(rank, ranks, rank, ranks, 0, 1)
print("waits", flush=True)
with first(world, per, directory=directory, timeout=float(timeout)) as mine:
    print("first" if mine else "after", flush=True)
    word = sys.stdin.readline().strip()
    if word == "raise":
        raise ValueError("cannot prepare")
    if word == "fork":
        if os.fork() == 0:
            sys.stdout.close()
            os.execvp("sleep", ["sleep", "1000"])
        print("forked", flush=True)
        sys.stdin.readline()
print("out", flush=True)
sys.stdin.readline()
"""


class Rank:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def tell(self, word: str = "go") -> None:
        assert self.process.stdin
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Job:
    """Starts ranks of one job; all of them are ended at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranks: list[Rank] = []

    def start(self, rank: int, ranks: int = 3, per: str = "host", directory: str = "", timeout: float = 50) -> Rank:
        process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(ranks), per, directory, str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(SRC), "TMPDIR": str(self.folder), "MASTER_PORT": "1"},
            start_new_session=True,
        )
        self.ranks.append(Rank(process))
        assert self.ranks[-1].hear() == "waits"
        return self.ranks[-1]

    def end(self) -> None:
        for rank in self.ranks:
            try:
                os.killpg(rank.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            rank.process.communicate()

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("headrace-first-*") if path.is_file()]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("per", ["host", "job"])
def test_one_is_first_and_the_others_come_after_it(job: Job, per: str) -> None:
    a = job.start(0, per=per)
    assert a.hear() == "first"
    b, c = job.start(1, per=per), job.start(2, per=per)
    a.tell()
    assert a.hear() == "out"
    assert (b.hear(), c.hear()) == ("after", "after")
    b.tell()
    c.tell()
    assert (b.hear(), c.hear()) == ("out", "out")
    assert job.files() == []  # the last one removes it


def test_others_wait_as_long_as_the_first_is_inside(job: Job) -> None:
    a = job.start(0, ranks=2)
    assert a.hear() == "first"
    b = job.start(1, ranks=2)
    reader = threading.Thread(target=lambda: heard.append(b.hear()))
    heard: list[str] = []
    reader.start()
    reader.join(0.3)
    assert heard == []
    a.tell()
    reader.join(20)
    assert heard == ["after"]


def test_when_the_first_is_killed_the_next_takes_its_place(job: Job) -> None:
    a = job.start(0)
    assert a.hear() == "first"
    b = job.start(1)
    a.kill()
    assert b.hear() == "first"
    c = job.start(2)
    b.tell()
    assert (b.hear(), c.hear()) == ("out", "after")


def test_children_of_a_killed_first_do_not_keep_its_place(job: Job) -> None:
    a = job.start(0)
    assert a.hear() == "first"
    a.tell("fork")
    assert a.hear() == "forked"
    b = job.start(1)
    os.kill(a.process.pid, signal.SIGKILL)
    assert b.hear() == "first"


def test_when_the_first_raises_the_next_takes_its_place(job: Job) -> None:
    a = job.start(0)
    assert a.hear() == "first"
    b = job.start(1)
    a.tell("raise")
    assert b.hear() == "first"
    assert a.process.wait() == 1
    assert a.process.stderr
    assert "ValueError: cannot prepare" in a.process.stderr.read()


def test_what_a_dead_job_has_left_is_not_believed(job: Job) -> None:
    a = job.start(0)
    assert a.hear() == "first"
    a.tell()
    assert a.hear() == "out"
    a.kill()
    assert len(job.files()) == 1
    b = job.start(1)  # of the next job: nobody of the last one lives
    assert b.hear() == "first"


def test_a_rank_that_has_passed_already_is_one_of_a_new_attempt(job: Job) -> None:
    a = job.start(0)
    assert a.hear() == "first"
    a.tell()
    assert a.hear() == "out"
    again = job.start(0)
    assert again.hear() == "first"


def test_a_directory_that_all_machines_share_serves_the_whole_job(job: Job, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    a = job.start(0, ranks=2, per="job", directory=str(shared))
    assert a.hear() == "first"
    b = job.start(1, ranks=2, per="job", directory=str(shared))
    assert [path.parent for path in job.files()] == [shared]
    a.kill()
    assert b.hear() == "first"


def test_waiting_has_an_end(job: Job) -> None:
    a = job.start(0, ranks=2)
    assert a.hear() == "first"
    b = job.start(1, ranks=2, timeout=0.2)
    _, err = b.process.communicate(timeout=20)
    assert b.process.returncode == 1
    assert "WorkerStuck: waited 0.2 s for the process that holds" in err


def test_a_lock_that_comes_too_late_is_given_back(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = job.start(0, ranks=2, per="job", directory=str(tmp_path))
    assert holder.hear() == "first"
    [path] = job.files()
    with pytest.raises(WorkerStuck):
        module._locked(path, 0.1)
    holder.tell()
    assert holder.hear() == "out"
    for thread in threading.enumerate():
        if thread.name == "headrace-lock":
            thread.join(10)
    os.close(module._locked(path, 10))


def test_a_single_process_is_always_first() -> None:
    for _ in range(2):
        with first(World()) as mine:
            assert mine


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / f"headrace-{os.getuid()}").mkdir()
    (tmp_path / f"headrace-{os.getuid()}").chmod(0o777)
    with pytest.raises(HeadraceError, match="ours alone"), first(World(0, 2, 0, 2)):
        pass


def test_where_machines_cannot_meet_the_error_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    with pytest.raises(BadOption, match="directory"), first(World(0, 2, 0, 1, 0, 2), per="job"):
        pass
    with pytest.raises(BadOption, match="'host' or 'job'"), first(World(), per="node"):
        pass


# --- through torch's store -------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    dist = pytest.importorskip("torch.distributed", reason="torch's store needs torch")
    made = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(made.port),
    }.items():
        monkeypatch.setenv(name, value)
    return made


def pass_through(rank: int, story: list[str], timeout: float = 20, wrong: bool = False) -> None:
    module._calls.clear()  # each thread stands for a process
    try:
        with first(World(rank, 2, 0, 1, rank, 2), per="job", timeout=timeout) as mine:
            story.append(f"{rank} {mine}")
            if wrong:
                raise ValueError("no such file")
    except (HeadraceError, ValueError) as error:
        story.append(f"{rank} {type(error).__name__} {error}")


@pytest.mark.usefixtures("store")
def test_rank_0_is_first_in_a_job_of_several_machines() -> None:
    story: list[str] = []
    other = threading.Thread(target=pass_through, args=(1, story))
    other.start()
    other.join(0.2)
    assert story == []
    pass_through(0, story)
    other.join(20)
    assert story == ["0 True", "1 False"]


@pytest.mark.usefixtures("store")
def test_an_error_of_rank_0_reaches_those_who_wait() -> None:
    story: list[str] = []
    other = threading.Thread(target=pass_through, args=(1, story))
    other.start()
    pass_through(0, story, wrong=True)
    other.join(20)
    assert story[0] == "0 True"
    mine, others = sorted(story[1:])  # whichever thread told it first
    assert mine == "0 ValueError no such file"
    assert others.startswith("1 HeadraceError rank 0 failed")
    assert "ValueError: no such file" in others


@pytest.mark.usefixtures("store")
def test_a_rank_0_that_never_speaks_is_waited_for_only_so_long() -> None:
    story: list[str] = []
    pass_through(1, story, timeout=0.3)
    assert story[0].startswith("1 WorkerStuck rank 0 gave no word within 0.3 s")


def test_marks_are_plain_json(job: Job) -> None:
    a = job.start(0)
    assert a.hear() == "first"
    a.tell()
    assert a.hear() == "out"
    [path] = job.files()
    assert json.loads(path.read_text())["0"][1] == a.process.pid
