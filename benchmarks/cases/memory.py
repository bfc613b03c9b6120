"""Memory over workers: a list of small dicts in the parent, four workers that read all of it.

A process that reads a Python object writes its reference count, and so gets a copy of the page: `grown` is what all
processes have for themselves or share after an epoch, beyond what there was before the loader. `while reading` is the
part of it that came after the first batches of every worker, as a part of the list's size. `shared` and `shared while
reading` are the same with the list put into shared memory first (`headrace.share`), where a loader has such a thing.
"""

import gc
from collections.abc import Callable
from typing import Any

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.data import Listed
from benchmarks.machine import private_memory

SIZE = 256
BATCHES = 1600
WORKERS = 4
CASE = Case(
    name="memory",
    question="How many MB more do 4 workers take that read a list of 410,000 small dicts of the parent?",
    targets=(
        Target("4 workers read a list of dicts: growth", "grown", "MB", ("torch", "headrace"), less=True),
        Target("the same, while reading, of the list", "while reading", "%", less=True, ranked=False),
        Target("the same, `headrace.share(list)`", "shared", "MB", less=True, ranked=False),
        Target(
            "the same, while reading, of the list", "shared while reading", "%", at_most=10, less=True, ranked=False
        ),
    ),
    why={
        "*": "Who reads a Python object writes its reference count, in the forked workers of every loader; the rest of "
        "the difference is what a worker needs for itself. `headrace.share`, below, is the way out.",
    },
)


def measure(subject: Subject, effort: Effort) -> Figures:
    samples = SIZE * effort.count(BATCHES, least=8 * WORKERS)
    found: Figures = {}
    before = private_memory()
    dataset = Listed(samples)
    size = max(1, private_memory() - before)
    found["grown"], found["while reading"] = growth(subject, dataset, size)
    share: Callable[[Any], Any] | None = getattr(subject, "share", None)
    if share is not None:
        found["shared"], found["shared while reading"] = growth(subject, Listed(samples, share), size)
    return found


def growth(subject: Subject, dataset: Listed, size: int) -> tuple[float, float]:
    """MB in all, and percent of the list between each worker's first batches and the end."""
    gc.collect()
    before = private_memory()
    batches = len(dataset) // SIZE
    seen = early = late = 0
    with subject.batches(dataset, size=SIZE, workers=WORKERS) as loader:
        for number, batch in enumerate(loader, 1):
            seen += len(batch[0])
            if number == 4 * WORKERS:
                early = private_memory()
            elif number == batches or number % 256 == 0:
                late = max(late, private_memory())
    if seen != len(dataset):
        raise AssertionError(f"{seen} samples came instead of {len(dataset)}")
    least = 1e-3  # nothing to speak of; a ratio needs a number
    return max(least, (late - before) / 1e6), max(least, 100 * (late - early) / size)
