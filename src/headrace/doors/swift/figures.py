"""Figures: how fast each step of a batch's way is, in batches per second.

    worker     collect batch data · collate batch data · serialize batch data (only with a batch_encoder)
    consumer   decode batch data (only with a batch_decoder) · transfer to device (only with a device)
               injection      how fast batches come while the training loop waits for them
               consumption    how fast the training loop takes them, its own work included

A worker's steps are counted for each worker, and travel with its batches. After every `window` batches of a step a
line is written; `total` is what all workers together have done since the start. Injection far above consumption: the
loader waits for the training loop. The two alike: the training loop waits for the loader.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.doors.swift.log import timestamp

UNIT = "batches/s"
COLLECT, COLLATE, SERIALIZE = "collect batch data", "collate batch data", "serialize batch data"
DECODE, TRANSFER, INJECTION, CONSUMPTION = "decode batch data", "transfer to device", "injection", "consumption"

Write = Callable[[dict[str, Any]], object]


@dataclass(slots=True)
class Figure:
    """How many batches a step was done for, and how long it took."""

    batches: int = 0
    seconds: float = 0.0
    unit: str = UNIT

    @property
    def value(self) -> float:
        return self.batches / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Figures:
    """Counts seconds by step and worker, and writes a line when a window is full; without a window nothing."""

    _window: int | None
    _consumer: int
    _write: Write | None
    _now: dict[tuple[str, int | None], Figure] = field(default_factory=dict)
    """By step and worker, of the window that is not full yet."""
    total: dict[str, Figure] = field(default_factory=dict)
    """By step, of all workers, since the start."""
    _requested: float = 0.0
    _delivered: float | None = None

    def add(self, task: str, seconds: float, worker: int | None = None) -> None:
        if self._window is None:
            return
        for figure in (self._now.setdefault((task, worker), Figure()), self.total.setdefault(task, Figure())):
            figure.batches += 1
            figure.seconds += seconds
        now = self._now[task, worker]
        if now.batches >= self._window:
            del self._now[task, worker]
            if self._write is not None:
                self._write(self._line(task, worker, now))

    def batch_requested(self) -> None:
        """The training loop asks for a batch."""
        self._requested = time.perf_counter()

    def batch_delivered(self) -> None:
        """The training loop receives a batch."""
        now = time.perf_counter()
        self.add(INJECTION, now - self._requested)
        if self._delivered is not None:
            self.add(CONSUMPTION, now - self._delivered)
        self._delivered = now

    def pause(self) -> None:
        """The end of an epoch: what the training loop does until the next one is not consumption."""
        self._delivered = None

    def _line(self, task: str, worker: int | None, figure: Figure) -> dict[str, Any]:
        line = {
            "benchmark_task": task,
            "value": round(figure.value, 2),
            "unit": figure.unit,
            "batches": figure.batches,
            "seconds": round(figure.seconds, 9),
            "consumer": self._consumer,
        }
        return line if worker is None else {**line, "worker": worker}


@contextmanager
def figure_file(path: str | Path) -> Iterator[Write]:
    """Writes lines to the end of a file that several processes may write to at once."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # Without a buffer each line is one write with O_APPEND: lines of different processes never mix.
    with open(path, "ab", buffering=0) as file:
        yield lambda line: file.write((json.dumps({**line, "timestamp": timestamp(time.time())}) + "\n").encode())
