"""The first moments of a rank, as a real process."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from headrace.launch import rank as launch_rank
from headrace.launch.job import bound_to


def run(*args: str, rank: str = "0") -> "subprocess.CompletedProcess[str]":
    command = [*bound_to(os.getpid(), signal.SIGKILL), rank, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, input="typed\n")


def test_the_program_takes_the_place_of_the_starter_with_its_arguments_as_they_are() -> None:
    done = run("printf", "%s|", "a b", "$HOME", "", "--", "*")
    assert (done.stdout, done.returncode) == ("a b|$HOME||--|*|", 0)


def test_its_exit_code_is_the_programs() -> None:
    assert run("sh", "-c", "exit 7").returncode == 7


def test_standard_input_is_for_rank_0_alone() -> None:
    assert [run("cat", rank=rank).stdout for rank in ("0", "1", "12")] == ["typed\n", "", ""]


def test_what_python_ignores_is_not_ignored_by_the_program() -> None:
    # (A whole path: Python 3.13 starts it as it starts the other one, by posix_spawn.)
    question = [str(shutil.which("grep")), "SigIgn", "/proc/self/status"]
    plain = subprocess.run(question, capture_output=True, text=True, check=True)  # without what Python itself ignores
    assert run(*question).stdout == plain.stdout


def test_a_program_that_cannot_start_is_said_as_a_shell_says_it(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not executable")
    missing = run(str(tmp_path / "none"))
    assert (missing.returncode, "No such file" in missing.stderr) == (127, True)
    assert run(str(plain)).returncode == 126


def test_a_rank_whose_starter_is_not_its_parent_does_not_start() -> None:
    command = [sys.executable, "-I", "-S", launch_rank.__file__, "1", "9", "0", "echo", "started"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("", 128 + 9)
