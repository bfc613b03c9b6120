"""Shared memory: how much of it batches of 32 MB take at most, at default options, while the loop holds one.

A thread adds up what lies in shared memory every few milliseconds: files of /dev/shm, and memory that no file shows,
which is found among the descriptors and the mappings of this process and its children. Each file counts once, with
what of it is really there.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.machine import shared_memory

NUMBERS = 2 << 20
"""Of 4 bytes in a sample."""
SIZE = 4
HOLD = 0.05
"""Seconds for which the loop works on a batch: workers are ahead of it."""
EVERY = 0.005
TIMES = ("torch_door", "torch")
CASE = Case(
    name="shared_memory",
    question="How many MB of shared memory do batches of 32 MB take at most, with 2 and with 8 workers?",
    targets=(
        Target("batches of 32 MB, 2 workers: peak, times torch's", "peak 2", "MB", TIMES, at_most=1.5, less=True),
        Target("batches of 32 MB, 8 workers: peak, times torch's", "peak 8", "MB", TIMES, at_most=1.5, less=True),
    ),
    subjects=("headrace", "torch_door", "torch"),
    peers=False,
    why={"*": "Both have two batches a worker on their way, and the one that the loop holds."},
)


class Large:
    """Samples of 8 MB, whose first number is their index."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> npt.NDArray[np.float32]:
        return np.full(NUMBERS, index, np.float32)


def measure(subject: Subject, effort: Effort) -> Figures:
    return {f"peak {workers}": peak(subject, workers, effort) / 1e6 for workers in (2, 8)}


def peak(subject: Subject, workers: int, effort: Effort) -> int:
    """Bytes at most, beyond what there was before."""
    batches = effort.count(80, least=6 * workers)
    dataset = Large(SIZE * batches)
    before = shared_memory()
    with opened(subject, dataset, workers) as loader, watched() as seen:
        came = 0
        for batch in loader:
            time.sleep(HOLD)
            if float(batch[-1][0]) != came + SIZE - 1:
                raise AssertionError("the order is wrong")
            came += len(batch)
    if came != len(dataset):
        raise AssertionError(f"{came} samples came instead of {len(dataset)}")
    least = 1  # (a loader without workers has nothing there; a ratio needs a number)
    return max(least, max(seen, default=0) - before)


def opened(subject: Subject, dataset: Large, workers: int) -> AbstractContextManager[Any]:
    """A loader as it comes: a DataLoader whose workers stay is another one."""
    made: Any = getattr(subject, "loader", None)
    if made is None:
        return subject.batches(dataset, size=SIZE, workers=workers)
    return nullcontext(made(dataset, SIZE, num_workers=workers))


@contextmanager
def watched() -> Iterator[list[int]]:
    """What was in shared memory, moment by moment."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(EVERY):
            seen.append(shared_memory())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
