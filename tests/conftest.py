"""What every test gets: a depth, a guard against things left behind, and a way to run a program of its own.

* Each test is followed by a check that no process, no non-daemon thread and no named shared memory is left
  (tests/leaks.py). A test that must leave something says so: `@pytest.mark.may_leave("threads", reason="...")`.
* Temporary files go into a folder that is removed at the end, also those that programs under test, torch's launcher and
  the examples of the docs leave; `tmp_path` stays where pytest keeps it, for a look after a failure.
* `no_new_fds` (opt-in, because caches are legal) checks that sockets, memfds, pidfds and pipes are given back;
  calling it inside the test, after a warm-up, starts the count again.
* `run_script(code, *args)` runs a Python program in a fresh interpreter that sees only src; with `warm=True`, in a fork
  of one that has imported torch.
* `tests.depth.depth(reduced, deep)` picks a count.
"""

import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.depth import DEPTH
from tests.leaks import DEADLINE, KINDS, describe, descriptors, in_session, kill, left, look
from tests.warm import ALONE, SRC
from tests.warm import run as run_warm

# Time limits belong to pytest-timeout; starting processes inside an example is slow by nature and means no harm.
settings.register_profile(
    "reduced",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("reduced"), max_examples=500, derandomize=False, print_blob=True)
settings.load_profile(DEPTH)

# Unbuffered, `print` writes a line and its end apart: the lines of programs that share a pipe would be mixed.
os.environ.pop("PYTHONUNBUFFERED", None)

STDERR = pytest.StashKey[int]()
"""The true one: while tests run, pytest keeps what goes to descriptor 2."""
TEMPORARY = pytest.StashKey[str]()
"""The folder for temporary files."""
CALL_FAILED = pytest.StashKey[bool]()
MORE_TIME = 20
"""Times the deadline of a test that runs its full counts."""
GRACE = 60.0
"""Seconds after its deadline in which a test must have ended. A main thread that is stuck in native code never sees
the signal of pytest-timeout: then the whole run ends, with the stacks of all threads."""


def _deadline(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker and marker.args else item.config.getini("timeout"))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(sys.stderr.fileno())
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # (A short name: sockets of multiprocessing lie in it.)
    os.environ["TMPDIR"] = tempfile.tempdir = config.stash[TEMPORARY] = tempfile.mkdtemp(prefix="hr-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[TEMPORARY], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    faulthandler.dump_traceback_later(_deadline(item) + GRACE, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if DEPTH == "deep":
            item.add_marker(pytest.mark.timeout(MORE_TIME * _deadline(item)), append=False)
        if DEPTH != "deep" and item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.skip(reason="runs under scripts/test --deep"))
        if not os.environ.get("HEADRACE_TEST_INTEGRATIONS") and item.get_closest_marker("integrations"):
            item.add_marker(pytest.mark.skip(reason="runs under scripts/test --integrations"))
        for marker in item.iter_markers("may_leave"):
            if not marker.kwargs.get("reason") or not set(marker.args) <= set(KINDS):
                raise pytest.UsageError(f"{item.nodeid}: may_leave takes names among {KINDS} and a reason=")


def pytest_collection_finish() -> None:
    """What is imported by now stays: collections, of which tests and the guard make many, pass it by."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.when == "call":
        item.stash[CALL_FAILED] = report.failed
    return report  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    allowed = {kind for marker in request.node.iter_markers("may_leave") for kind in marker.args}
    before = look()
    yield
    # The traceback of a failed test keeps its objects alive: clean up, but report only the failure itself.
    failed = request.node.stash.get(CALL_FAILED, False)
    found = {kind: things for kind, things in left(before, 0.0 if failed else DEADLINE).items() if kind not in allowed}
    if found and not failed:
        pytest.fail("left behind: " + "; ".join(f"{kind}: {', '.join(things)}" for kind, things in found.items()))


@pytest.fixture
def no_new_fds() -> Iterator[Callable[[], None]]:
    before = descriptors()

    def again() -> None:
        before.clear()
        before.update(descriptors())

    yield again
    if growth := descriptors() - before:
        gc.collect()
        growth = descriptors() - before
        if growth:
            pytest.fail("descriptors were not given back: " + ", ".join(f"{n} x {kind}" for kind, n in growth.items()))


class RunScript(Protocol):
    def __call__(
        self,
        code: str,
        *args: object,
        timeout: float = 60,
        piped: bool = False,
        warm: bool = False,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run_script(tmp_path: Path) -> Iterator[RunScript]:
    """Runs `code` as a file in `tmp_path` (or through `python -` when piped), in a session of its own.

    A `warm` program is a fork of a process that has imported torch (tests/warm.py). The program and all that it started
    are killed at the time-out. Nothing that it started may outlive it.
    """
    sessions: list[int] = []
    numbers = count()

    def run(
        code: str,
        *args: object,
        timeout: float = 60,
        piped: bool = False,
        warm: bool = False,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        code = textwrap.dedent(code)
        program = tmp_path / f"program{next(numbers)}.py"
        program.write_text(code)
        if warm:
            try:
                return run_warm(program, args, tmp_path, timeout, ALONE | os.environ | (env or {}), sessions.append)
            except subprocess.TimeoutExpired as late:
                pytest.fail(
                    f"the program did not end within {timeout} s\nstdout:\n{late.output}\nstderr:\n{late.stderr}"
                )
        process = subprocess.Popen(
            [sys.executable, "-" if piped else str(program), *map(str, args)],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SRC), **(env or {})},
            start_new_session=True,
        )
        sessions.append(process.pid)
        try:
            out, err = process.communicate(code if piped else None, timeout)
        except subprocess.TimeoutExpired:
            kill_all(process)
            out, err = process.communicate()
            pytest.fail(f"the program did not end within {timeout} s\nstdout:\n{out}\nstderr:\n{err}")
        except BaseException:
            kill_all(process)
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    yield run
    members = [process for session in sessions for process in in_session(session)]
    _, alive = psutil.wait_procs(members, timeout=DEADLINE)
    if alive:
        told = ", ".join(map(describe, alive))
        kill(alive)
        pytest.fail(f"processes outlived the program that started them: {told}")


def kill_all(process: subprocess.Popen[str]) -> None:
    family = in_session(process.pid)
    if process.poll() is None:
        family += psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
    kill(family)
