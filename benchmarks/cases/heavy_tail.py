"""A heavy tail: one sample in a hundred is 100 times slower; do the other workers go on, and is the order kept?

The ideal is all sleep divided by the workers. The sleep is nominal: what the system's timer adds counts against the
loader. What it adds differs from machine to machine and from minute to minute, so bare processes that only sleep run
beside it: on the share that they keep, no loader has an influence.

The second data set draws a random number for every sample, as augmentation does.
"""

import random
import time
from typing import NamedTuple

from benchmarks.bare import in_processes
from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.data import HeavyTail

SIZE = 16
WORKERS = 4
USUAL = 0.001
CASE = Case(
    name="heavy_tail",
    question="Which share of the ideal time is kept, when 1 % of the samples are 100 times slower (4 workers)?",
    targets=(
        Target("1 % of samples 100x slower: share of the ideal", "share of ideal", "%", at_least=85),
        Target("four bare processes that only sleep: share of the ideal", "bare share", "%", ranked=False),
        Target("1 % of samples 100x slower", "samples/s", "samples/s", FASTER, at_least=1.2, ranked=False),
        Target("the same, and all draw random numbers", "drawn/s", "samples/s", FASTER, at_least=1.2, ranked=False),
    ),
    door=True,
    why={"*": "Whoever lets nothing wait for a slow sample gets what the system's timer leaves of the ideal."},
)


class DrawingTail(HeavyTail):
    """A heavy tail whose samples draw a random number each."""

    def __getitem__(self, index: int, /) -> int:
        random.random()
        return super().__getitem__(index)


class Epoch(NamedTuple):
    """How long one epoch took, and which share of the ideal that is."""

    seconds: float
    share: float


def measure(subject: Subject, effort: Effort) -> Figures:
    dataset = HeavyTail(SIZE * effort.count(800, least=WORKERS), USUAL)
    plain = timed(subject, dataset, HeavyTail)
    drawing = DrawingTail(SIZE * effort.count(200, least=WORKERS), USUAL)
    drawn = timed(subject, drawing, DrawingTail)
    bare = in_processes(WORKERS, lambda number: kept(dataset, range(number, len(dataset) // 4, WORKERS)))
    return {
        "share of ideal": 100 * plain.share,
        "bare share": 100 * sum(bare) / WORKERS,
        "samples/s": len(dataset) / plain.seconds,
        "drawn/s": len(drawing) / drawn.seconds,
    }


def timed(subject: Subject, dataset: HeavyTail, kind: type[HeavyTail]) -> Epoch:
    """The second epoch over a data set; the first one starts the workers."""
    awake = kind(len(dataset), USUAL, sleep=bool)
    with subject.batches(awake, size=SIZE, workers=0) as loader:
        expected = [index for batch in loader for index in batch.tolist()]
    with subject.batches(dataset, size=SIZE, workers=WORKERS) as loader:
        for _ in loader:
            pass
        arrived: list[int] = []
        began = time.perf_counter()
        for batch in loader:
            arrived += batch.tolist()
        seconds = time.perf_counter() - began
    if arrived != expected:
        raise AssertionError("the order differs from the order in-process")
    return Epoch(seconds, float(dataset.seconds.sum()) / WORKERS / seconds)


def kept(dataset: HeavyTail, positions: range) -> float:
    """Which share of the time these positions are asleep for, as they should be."""
    began = time.perf_counter()
    for position in positions:
        dataset[position]
    return float(dataset.seconds[positions].sum()) / (time.perf_counter() - began)
