"""JPEG: when decoding is the work, does the loader leave both cores to it?

Between the loader's epochs, in the same process, run one core's rate (decoding in a bare loop), because the speed of a
core changes from second to second where machines share it; and, before them, two bare processes with no loader: two
cores that share a cache or a pipeline give less than twice one, and no loader can give more.
"""

import time
from typing import Any

from benchmarks.bare import in_processes
from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.data import Jpegs
from benchmarks.timing import epoch

SIZE = 32
CASE = Case(
    name="jpeg",
    question="How many JPEG images a second, and which share of twice one core's rate?",
    targets=(
        Target("JPEG decode", "images/s", "images/s", FASTER, at_least=1.0),
        Target("JPEG decode: share of twice one core's rate", "share of two cores", "%", at_least=85, ranked=False),
        Target("two bare processes: share of twice one core's rate", "bare share", "%", ranked=False),
    ),
    door=True,
    why={"*": "Decoding is nearly all of the work here: loaders that keep both cores busy are alike."},
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(50)
    dataset = Jpegs(batches * SIZE)
    bare = sum(in_processes(2, lambda _: one_core(dataset, effort.seconds / 2)))
    alone = [one_core(dataset, effort.seconds / 4)]
    epochs, seconds = 0, 0.0
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        epoch(loader, touch, batches)
        while seconds < effort.seconds:
            seconds += epoch(loader, touch, batches)
            epochs += 1
            alone.append(one_core(dataset, effort.seconds / 4))
    rate = SIZE * batches * epochs / seconds
    one = sum(alone) / len(alone)
    return {
        "images/s": rate,
        "one core images/s": one,
        "share of two cores": 100 * rate / (2 * one),
        "bare share": 100 * bare / (2 * one),
    }


def touch(batch: Any) -> Any:
    return batch[0, 0, 0, 0]


def one_core(dataset: Jpegs, seconds: float) -> float:
    count = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or count == 0:
        dataset[count]
        count += 1
    return count / took
