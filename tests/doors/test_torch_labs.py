"""The lab on random values in workers shows what it says."""

from pathlib import Path

import pytest

from tests import warm

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(120)
def test_random_values_hang_on_workers_unless_they_are_keyed(tmp_path: Path) -> None:
    words = ["--workers", "0", "1", "2"]
    done = warm.run(ROOT / "examples/labs/worker_randomness.py", words, tmp_path, timeout=100)
    assert done.returncode == 0, done.stderr
    carried, keyed, placed = done.stdout.strip().split("\n\n")
    assert carried.endswith("they differ")
    assert keyed.endswith("the same everywhere")
    assert placed.endswith("the same everywhere")
    assert placed.count("workers, batches of") == 6
