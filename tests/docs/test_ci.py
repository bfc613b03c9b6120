"""The hosted CI calls scripts that are there, on every Python that we promise; and a newcomer gets through."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_every_program_that_ci_runs_is_there() -> None:
    called = re.findall(r"run: (?:python )?((?:scripts|examples)/\S+)", WORKFLOW)
    assert {"scripts/check", "scripts/test", "scripts/docs", "scripts/newcomer", "examples/threads.py"} <= set(called)
    for path in called:
        assert (ROOT / path).exists(), path
        assert path.endswith(".py") or (ROOT / path).stat().st_mode & 0o111, f"{path} is not a program"


def test_ci_runs_on_every_python_and_system() -> None:
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    for versions in re.findall(r"python: \[(.*?)\]", WORKFLOW):
        assert re.findall(r"[\d.]+", versions) == [least, "3.12", "3.13", "3.14"]
    assert all(system in WORKFLOW for system in ("ubuntu-latest", "macos-latest", "windows-latest"))


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_newcomer_gets_through() -> None:
    done = subprocess.run([ROOT / "scripts" / "newcomer", "--changes"], capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok: every block of the README, and every door\n")
