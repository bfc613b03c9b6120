"""The guard in tests/conftest.py is itself guarded: what it must see, it sees."""

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.conftest import RunScript
from tests.leaks import LONG_LIVED, SHM, descriptors, left, look

SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_a_living_child_is_seen_and_ended() -> None:
    before = look()
    child = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    try:
        found = left(before, deadline=0.1)
        assert list(found) == ["processes"]
        assert found["processes"][0].startswith(str(child.pid))
        assert not psutil.pid_exists(child.pid)
    finally:
        child.kill()
        child.communicate()


def test_an_orphan_is_seen() -> None:
    before = look()
    program = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']).pid)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    orphan = int(parent.stdout.readline())
    os.waitpid(parent.pid, 0)  # communicate() would close the orphan's stdin and so end it
    try:
        assert any(told.startswith(str(orphan)) for told in left(before, deadline=0.1)["processes"])
    finally:
        parent.communicate()


def test_a_child_that_is_ending_is_waited_for() -> None:
    before = look()
    child = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE)
    assert child.stdin
    child.stdin.close()
    assert left(before) == {}
    child.wait()


def test_a_thread_that_stays_is_seen_and_a_daemon_is_not() -> None:
    before = look()
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, daemon=daemon) for daemon in (False, True)]
    for thread in threads:
        thread.start()
    try:
        assert left(before, deadline=0.1) == {"threads": [repr(threads[0])]}
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert left(before) == {}


@pytest.mark.skipif(not SHM.exists(), reason="named shared memory is a folder on Linux only")
def test_named_memory_that_stays_is_seen() -> None:
    before = look()
    path = SHM / f"headrace-test-{os.getpid()}"
    path.touch()
    try:
        assert left(before, deadline=0.1) == {"memory": [path.name]}
    finally:
        path.unlink()
    assert left(before) == {}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted on Linux only")
def test_descriptors_are_counted_by_kind() -> None:
    before = descriptors()
    read, write = os.pipe()
    assert descriptors() - before == {"pipe": 2}
    os.close(read)
    os.close(write)
    assert descriptors() == before


def test_a_warmed_up_cache_is_not_growth(no_new_fds: Callable[[], None], request: pytest.FixtureRequest) -> None:
    for descriptor in os.pipe():
        request.addfinalizer(partial(os.close, descriptor))
    no_new_fds()


def test_a_program_runs_as_a_file_and_through_a_pipe(run_script: RunScript) -> None:
    code = """
        import sys
        print(sys.argv[0][-3:], sys.argv[1:])
    """
    assert run_script(code, 1, "two").stdout == ".py ['1', 'two']\n"
    assert run_script(code, 1, "two", piped=True).stdout == "- ['1', 'two']\n"


def test_a_program_that_hangs_is_ended_with_its_children(run_script: RunScript) -> None:
    code = """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import signal; signal.pause()"])
    """
    with pytest.raises(pytest.fail.Exception, match="did not end within 2 s"):
        run_script(code, timeout=2)
    # That nothing lives on is checked when the fixture ends.


@pytest.mark.parametrize(("module", "path"), LONG_LIVED)
def test_the_places_of_long_lived_helpers_exist(module: str, path: str) -> None:
    """A renamed attribute would turn a legal helper into a leak, or hide that it moved."""
    holder, first = importlib.import_module(module), path.split(".")[0]
    assert hasattr(holder, first)
    assert hasattr(getattr(holder, first), path.split(".")[1])
