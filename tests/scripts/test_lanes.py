"""The run of all tests: its groups side by side, and what Ctrl-C leaves of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
import lanes
lanes.TESTS = Path({tests!r})
sys.exit(lanes.main(["-q", "-p", "no:cacheprovider", "-c", {ini!r}, "--import-mode=importlib"]))
"""
PASSES = "def test_it(): pass\n"
WAITS = """
import os, threading
def test_first(): pass
def test_waits():
    try:
        with open({fifo!r}, "w") as begun:
            begun.write("begun")
        threading.Event().wait()
    finally:
        os.unlink({fifo!r})
"""


@contextmanager
def running(tmp_path: Path, files: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    for name, text in files.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own.ini").write_text("[pytest]\n")
    program = PROGRAM.format(scripts=str(SCRIPTS), tests=str(tmp_path / "tests"), ini=str(tmp_path / "own.ini"))
    command = [sys.executable, "-c", program]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, env=bare, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_group_that_fails_is_shown_and_named(tmp_path: Path) -> None:
    with running(
        tmp_path, {"a/test_a.py": PASSES, "b/test_b.py": "def test_it(): assert 'seen'.upper() == 3\n"}
    ) as run:
        said, _ = run.communicate(timeout=50)
    assert run.returncode == 1
    assert "'SEEN' == 3" in said
    assert said.splitlines()[-2:] == ["did not pass: b", "1 passed, 1 failed, 0 skipped"]


def test_an_interrupted_run_ends_with_what_it_counted(tmp_path: Path) -> None:
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    names = [f"{letter}/test_{letter}.py" for letter in "abcd"]
    files = {name: WAITS.format(fifo=str(fifo)) if name[0] == "a" else PASSES for name in names}
    with running(tmp_path, files) as run:
        with open(fifo) as begun:
            assert begun.read() == "begun"
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=50)
    lines = said.splitlines()
    assert run.returncode == 128 + signal.SIGINT, said
    assert not fifo.exists()  # the test at hand could clean up
    left = next(line for line in lines if line.startswith("interrupted, not run to the end: "))
    assert "a" in left.split(": ")[1].split(", ")
    ended = sum(line[0] in "bcd" and ": 1 passed" in line for line in lines if line)
    assert lines[-1] == f"{1 + ended} passed, 0 failed, 0 skipped"
    assert "Traceback" not in said
    assert "did not pass" not in said
