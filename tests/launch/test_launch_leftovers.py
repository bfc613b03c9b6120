"""What ranks leave running is ended, and nobody else."""

import os
import signal
import subprocess
import uuid
from pathlib import Path

import psutil
import pytest

from headrace.launch.leftovers import end_job


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def started(script: str, name: str) -> tuple["subprocess.Popen[str]", int]:
    """A process of the job, and the number of the child that it prints."""
    process = subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "HEADRACE_JOB": name},
    )  # fmt: skip
    assert process.stdout
    with process.stdout as out:
        return process, int(out.readline())


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_children_of_a_rank_that_has_ended_are_ended(name: str) -> None:
    rank, child = started("sleep 1000 & echo $!", name)
    rank.wait()
    assert runs(child)
    end_job(name)
    assert not runs(child)


def test_what_ignores_every_request_is_ended_with_its_children(name: str) -> None:
    rank, child = started("trap '' TERM INT HUP; sleep 1000 & echo $!; while :; do sleep 1; done", name)
    end_job(name)
    assert rank.wait(timeout=10) == -signal.SIGKILL
    assert not runs(child)


def test_a_daemon_with_a_session_of_its_own_is_ended_too(name: str) -> None:
    rank, child = started("setsid sh -c 'echo $$; exec sleep 1000' &", name)
    rank.wait()
    end_job(name)
    assert not runs(child)


def test_processes_of_other_jobs_are_left_alone(name: str) -> None:
    other, child = started("sleep 1000 & echo $!; wait", uuid.uuid4().hex)
    end_job(name)
    assert runs(child)
    os.killpg(other.pid, signal.SIGKILL)
    other.wait(timeout=10)


def test_where_there_is_no_proc_nothing_is_ended(name: str, tmp_path: Path) -> None:
    rank, child = started("sleep 1000 & echo $!; wait", name)
    end_job(name, tmp_path / "none")
    assert runs(child)
    end_job(name)
    rank.wait(timeout=10)
