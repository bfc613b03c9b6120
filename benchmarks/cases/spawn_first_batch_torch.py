"""The first batch in clean processes, for a data set whose module imports torch: the import is most of the time."""

from benchmarks.case import OF_TIME, Case, Effort, Figures, Subject, Target
from benchmarks.cases.spawn_first_batch import SIZE, first_batches

CASE = Case(
    name="spawn_first_batch_torch",
    question="How long does the first batch take in clean processes (module with torch)?",
    targets=(
        Target("first batch, clean processes, torch in the module", "first", "s", OF_TIME, at_most=1.0, less=True),
        Target("the same, `start_method='spawn'`", "spawn", "s", OF_TIME, at_most=1.0, less=True),
        Target("the same, second loader of the process", "second", "s", OF_TIME, at_most=1 / 10, less=True),
    ),
    peers=False,
    door=True,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    from benchmarks.data_torch import TorchPairs

    return first_batches(subject, TorchPairs(SIZE * effort.count(100, least=4)))
