"""A clip: 16 frames at random places of a h264 film of a minute, 320 x 240, with a key frame every 12.

Three ways take turns in one process, because the speed of a core changes from second to second: Headrace's `decode`
without workers, torchcodec by itself, and the whole film decoded, of which 16 frames are kept, as release 0.1 did it.
Afterwards a thousand clips: what the process has grown by since the hundredth.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.machine import private_memory
from benchmarks.media import FRAMES, film, frames
from headrace import Loader, Pipe

CASE = Case(
    name="clip",
    question="How many clips of 16 random frames a second, of a film of a minute, in one process?",
    targets=(
        Target("16 random frames of a film of 60 s", "clips/s", "clips/s"),
        Target("the same, of a whole decode (release 0.1)", "of whole", "times", at_least=10),
        Target("the same, of torchcodec by itself", "of torchcodec", "%", at_least=90),
        Target("memory after 1,000 clips, more than after 100", "grown", "MB", at_most=16, less=True),
    ),
    subjects=("headrace",),
    deadline=400.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        data = film(Path(folder))
    ours, bare, whole = (Clock(way) for way in (clips(data), map(frames, repeat(data)), wholes(data)))
    began = time.perf_counter()
    while time.perf_counter() - began < 4 * effort.seconds:
        for clock in (ours, bare):
            clock.take(8)
        whole.take(1)
    ours.take(max(0, 100 - ours.count))
    hundred = private_memory()
    ours.take(effort.count(900))
    return {
        "clips/s": 1 / ours.each,
        "of whole": whole.each / ours.each,
        "of torchcodec": 100 * bare.each / ours.each,
        "grown": max(1e-3, (private_memory() - hundred) / 1e6),
    }


class Clock:
    """What the samples of one way have taken; the first is for imports."""

    def __init__(self, way: Iterator[Any]) -> None:
        self.way = way
        self.count, self.seconds = 0, 0.0
        next(way)

    def take(self, count: int) -> None:
        began = time.process_time()
        for _ in range(count):
            next(self.way)
        self.seconds += time.process_time() - began
        self.count += count

    @property
    def each(self) -> float:
        return self.seconds / self.count


def clips(data: bytes) -> Iterator[Any]:
    with Loader(Pipe.of([("film.mp4", data)] * 10_000).decode(frames=FRAMES)) as loader:
        yield from loader


def wholes(data: bytes) -> Iterator[Any]:
    from headrace.ops.media.video import Videos

    everything: Callable[[str, bytes], Any] = Videos()
    while True:
        yield everything("mp4", data)[0][:: 1440 // FRAMES].copy()
