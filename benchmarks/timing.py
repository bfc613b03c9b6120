"""Clocks: a warm epoch first, then timed epochs, each checked for the number of batches it should have."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Effort, Epochs

Touch = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Timed:
    """What the timed epochs took, on the clock and of the consuming thread's own time."""

    epochs: int
    batches: int
    seconds: float
    thread_seconds: float

    @property
    def rate(self) -> float:
        return self.batches / self.seconds


def timed(loader: Epochs, touch: Touch, *, batches: int, effort: Effort) -> Timed:
    """Time whole epochs of `batches` batches; `touch` looks at each batch, as a consumer would, and lets it go."""
    epoch(loader, touch, batches)
    epochs = 0
    thread = time.thread_time()
    began = time.perf_counter()
    while True:
        epoch(loader, touch, batches)
        epochs += 1
        seconds = time.perf_counter() - began
        if seconds >= effort.seconds:
            return Timed(epochs, epochs * batches, seconds, time.thread_time() - thread)


def epoch(loader: Epochs, touch: Touch, batches: int) -> float:
    """The seconds that a whole epoch takes."""
    count = 0
    began = time.perf_counter()
    for batch in loader:
        touch(batch)
        count += 1
    if count != batches:
        raise AssertionError(f"an epoch gave {count} batches instead of {batches}: the loader loses or repeats data")
    return time.perf_counter() - began
