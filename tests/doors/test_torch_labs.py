"""The lab on random values in workers shows what it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(120)
def test_random_values_hang_on_workers_unless_they_are_keyed() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/labs/worker_randomness.py"), "--workers", "0", "1", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    carried, keyed, placed = done.stdout.strip().split("\n\n")
    assert carried.endswith("they differ")
    assert keyed.endswith("the same everywhere")
    assert placed.endswith("the same everywhere")
    assert placed.count("workers, batches of") == 6
