"""`headrace(...)` runs the real command, `start(...)` only starts it; nothing that it started may outlive the test.

Ranks are sessions of their own, so they are found by a mark in their environment.
"""

import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from headrace.ranks import env
from tests import warm
from tests.conftest import SRC

SHOW = "import os; from headrace.ranks.env import replicas; from headrace.plan.world import World; "
WAIT = "while :; do sleep 1; done"
MARK = "HEADRACE_TEST_MARK"
DEADLINE = 10.0
LAUNCHED = {name for launcher in (env.OWN, *env.LAUNCHERS) for name in launcher.names()}


Process = subprocess.Popen[str] | warm.Piped


class Start(Protocol):
    def __call__(self, *args: str, environ: dict[str, str] | None = None) -> Process: ...


class Headrace(Protocol):
    def __call__(
        self, *args: str, environ: dict[str, str] | None = None, timeout: float = 50
    ) -> "subprocess.CompletedProcess[str]": ...


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


def surroundings(mark: str, more: dict[str, str] | None) -> dict[str, str]:
    """The environment of a command: no launcher's, and marked."""
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    return {**clean, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1", MARK: mark, **(more or {})}


@pytest.fixture
def start(tmp_path: Path, mark: str) -> Iterator[Start]:
    """(Torch costs more than the rest: launchers, and commands on a `torchy.py`, are forks of one that has it.)"""
    started: list[Process] = []

    def begin(*args: str, environ: dict[str, str] | None = None) -> Process:
        imports_torch = args[0] == "run" or any("torchy" in word for word in args)
        if imports_torch and "torch" in sys.modules and "PYTHONPATH" not in (environ or {}):
            started.append(warm.start(warm.MODULE, ["headrace.cli", *args], tmp_path, surroundings(mark, environ)))
            return started[-1]
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=surroundings(mark, environ),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        for end in (process.stdout, process.stderr):
            if end:
                end.close()
    _, left = psutil.wait_procs(marked(mark), timeout=DEADLINE)
    told = [" ".join(process.cmdline()) for process in left]
    for process in left:
        process.kill()
    assert not told, f"processes outlived the launcher: {told}"


@pytest.fixture
def headrace(start: Start) -> Headrace:
    def run(
        *args: str, environ: dict[str, str] | None = None, timeout: float = 50
    ) -> "subprocess.CompletedProcess[str]":
        process = start(*args, environ=environ)
        out, err = process.communicate(timeout=timeout)
        assert process.returncode is not None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


class Shell(Protocol):
    def __call__(self, script: str, *, timeout: float = 50) -> "subprocess.CompletedProcess[bytes]": ...


@pytest.fixture
def shell(start: Start, tmp_path: Path, mark: str) -> Shell:
    """Runs a script of the shell in which RUN is `headrace run`; `start` looks for what it leaves."""
    command = f"{shlex.quote(sys.executable)} -m headrace.cli run"

    def run(script: str, *, timeout: float = 50) -> "subprocess.CompletedProcess[bytes]":
        words = ["sh", "-c", script.replace("RUN", command)]
        env = surroundings(mark, None)
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, timeout=timeout, check=False)

    return run


def wait_for(process: Process, word: str, times: int) -> None:
    assert process.stdout
    for line in process.stdout:
        times -= word in line
        if not times:
            return
    raise AssertionError(f"ended before {word!r}: {process.stderr.read() if process.stderr else ''}")


def children_until(process: Process, count: int) -> list[int]:
    """The ranks, once they have become the program; the launcher's own start is all that is waited for."""
    parent = psutil.Process(process.pid)
    while True:
        found = [child.pid for child in parent.children() if child.name() == "sleep"]
        if len(found) == count:
            return found
        assert process.poll() is None
        os.sched_yield()
