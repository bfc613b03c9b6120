"""The heap of a worker: large samples that one batch has freed are where the next one's are made."""

import sys
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have another C library")
SIZE = 16
PAGES = 256


class Large:
    """Samples of a megabyte; each says how many pages its process has been given so far."""

    def __len__(self) -> int:
        return SIZE * 12

    def __getitem__(self, index: int) -> Any:
        import resource  # there is none on Windows

        made = np.full(PAGES * 4096, index % 251, np.uint8)
        return made[:4], resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def pages_a_sample(method: Any) -> float:
    """Of the later batches."""
    with Loader(Pipe.of(Large()).batch(SIZE).collate(), workers=1, start_method=method) as loader:
        counts = [count for _, counts in loader for count in counts.tolist()]
    later = counts[len(counts) // 2 :]
    return float(later[-1] - later[0]) / len(later)


@pytest.mark.parametrize("method", ["fork", None, "spawn", "forkserver"])
def test_a_batch_is_made_in_memory_that_the_one_before_has_freed(method: str | None) -> None:
    assert pages_a_sample(method) < PAGES / 16


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")  # read by the C library when a program starts
    assert pages_a_sample("spawn") > PAGES / 2
