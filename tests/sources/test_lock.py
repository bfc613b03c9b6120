import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.sources import lock
from tests.conftest import SRC

HOLDER = """
import sys
from headrace.sources.lock import hold
with hold(sys.argv[1], 5):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SRC)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_lock_is_held_once_and_leaves_no_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    with lock.hold(path, 1):
        assert lock.owner(path) == str(os.getpid())
        assert not lock.sweep(path)
        with pytest.raises(TimeoutError, match=f"is held by process {os.getpid()}"), lock.hold(path, 0.05):
            pass
    assert os.listdir(tmp_path) == []


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = holder(path)
    try:
        with pytest.raises(TimeoutError, match=f"is held by process {process.pid}"), lock.hold(str(path), 0.05):
            pass
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        with lock.hold(str(path), 20):
            assert lock.owner(str(path)) == str(os.getpid())
    finally:
        end(process)


def test_a_killed_owner_leaves_nothing_locked(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    end(holder(path))
    assert path.exists(), "the file is left, and means nothing"
    assert lock.sweep(str(path))
    end(holder(path))
    with lock.hold(str(path), 20):
        pass
    assert not path.exists()


def test_threads_take_turns(tmp_path: Path) -> None:
    inside = []

    def work() -> None:
        with lock.hold(str(tmp_path / "x.lock"), 20):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == []
