"""The short form of scripts/chaos: kills at random moments leave the stream as it was, and nothing behind."""

import re
from pathlib import Path

import pytest

from tests.conftest import RunScript

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "chaos_program.py"


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_kills_at_random_moments_change_nothing_and_leave_nothing(run_script: RunScript) -> None:
    kills, runs = 1000, 50
    done = run_script(PROGRAM.read_text(), "--kills", kills, "--runs", runs, "--seed", 5, timeout=1000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations  0\nleaks       0\n" in done.stdout
    told = re.search(r"^kills +(\d+)", done.stdout, re.MULTILINE)
    assert told is not None
    assert int(told[1]) >= kills - kills // 4
