"""The first batch in clean processes, for a data set whose module needs numpy and no torch.

Timed from the making of a loader to its first batch, with everything the consumer needs imported before. `first` and
`second` start workers as the subject itself does when nothing may be inherited; the second loader is made after the
first was closed, in the same process. `spawn` asks for the start method by name.
"""

import time

from benchmarks.case import OF_TIME, Case, Dataset, Effort, Figures, Start, Subject, Target
from benchmarks.data import Pairs
from benchmarks.stored import prepare

SIZE = 64
CASE = Case(
    name="spawn_first_batch",
    question="How long does the first batch take in clean processes (module without torch)?",
    targets=(
        Target("first batch, clean processes, no torch in the module", "first", "s", OF_TIME, at_most=1 / 5, less=True),
        Target("the same, `start_method='spawn'`", "spawn", "s", OF_TIME, at_most=1 / 5, less=True),
        Target("the same, second loader of the process", "second", "s", OF_TIME, at_most=1 / 10, less=True),
    ),
    door=True,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    return first_batches(subject, Pairs(SIZE * effort.count(100, least=4)))


def first_batches(subject: Subject, dataset: Dataset) -> Figures:
    return {
        "first": first_batch(subject, dataset, "clean"),
        "second": first_batch(subject, dataset, "clean"),
        "spawn": first_batch(subject, dataset, "spawn"),
    }


def first_batch(subject: Subject, dataset: Dataset, start: Start, *, made: bool = False) -> float:
    """Seconds from the making of a loader to its first batch, or `made`: from its `iter()`."""
    seconds = None
    prepare(subject, dataset)
    began = time.perf_counter()
    with subject.batches(dataset, size=SIZE, workers=2, start=start) as loader:
        if made:
            began = time.perf_counter()
        for batch in loader:  # to the end, untimed: some loaders crash when closed while a worker is still starting
            if seconds is None:
                seconds = time.perf_counter() - began
                if batch[0].tolist() != list(range(SIZE)):
                    raise AssertionError("the first batch is not the first batch")
    if seconds is None:
        raise AssertionError("the loader gave no batch")
    return seconds
