"""Resume at depth: how long after a restart, half-way through a shuffled epoch, until the next batch?

`resume` is from the making of a loader, with a state, to its first batch; `cold` the same without a state. The state
goes through pickle, as into a checkpoint. The batch must be the one that would have come next.
"""

import pickle
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.case import Case, Dataset, Effort, Figures, Subject, Target
from benchmarks.data import Pairs
from benchmarks.stored import prepare

SIZE = 256
SAMPLES = 2000 * SIZE
WORKERS = 2
CASE = Case(
    name="resume",
    question="How long does the first batch take after a resume half-way through 512,000 shuffled samples?",
    targets=(
        Target("first batch after a resume at half of 512,000", "resume", "s", ("stateful", "headrace"), less=True),
        Target("first batch of a cold start", "cold", "s", less=True, ranked=False),
        Target("size of the state", "state", "bytes", less=True, ranked=False),
    ),
    needs="resumable",
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(SAMPLES // SIZE, least=8)
    dataset = Pairs(batches * SIZE)
    prepare(subject, dataset)
    began = time.perf_counter()
    with subject.resumable(dataset, size=SIZE, workers=WORKERS) as loader:
        running = iter(loader)
        next(running)
        cold = time.perf_counter() - began
        for _ in islice(running, batches // 2 - 1):
            pass
        kept = pickle.dumps(loader.state())
        expected = indices(running)
    resumed, arrived = first(subject, dataset, pickle.loads(kept))
    if arrived != expected:
        raise AssertionError("the batch after the resume is not the one that would have come next")
    return {"resume": resumed, "cold": cold, "state": len(kept)}


def first(subject: Subject, dataset: Dataset, state: Any) -> tuple[float, list[int]]:
    began = time.perf_counter()
    with subject.resumable(dataset, size=SIZE, workers=WORKERS, state=state) as loader:
        arrived = indices(iter(loader))
        return time.perf_counter() - began, arrived


def indices(running: Iterator[Any]) -> list[int]:
    found: list[int] = next(running)[0].tolist()
    return found
