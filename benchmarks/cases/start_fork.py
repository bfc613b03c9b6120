"""The first batch with forked workers, from `iter()` on: what the start costs when everything can be inherited."""

from benchmarks.case import OF_TIME, Case, Effort, Figures, Subject, Target
from benchmarks.cases.spawn_first_batch import SIZE, first_batch
from benchmarks.data import Pairs

CASE = Case(
    name="start_fork",
    question="How long does the first batch take with forked workers?",
    targets=(
        Target("first batch, forked workers, from `iter()`", "first", "s", OF_TIME, at_most=1.0, less=True),
        Target("the same, second loader of the process", "second", "s", OF_TIME, less=True, ranked=False),
    ),
    door=True,
    why={
        "*": "The first loader of a process imports what worker processes need when it is made, as torch's does with "
        "`import torch`; that is not in these figures."
    },
)


def measure(subject: Subject, effort: Effort) -> Figures:
    dataset = Pairs(SIZE * effort.count(100, least=4))
    return {
        "first": first_batch(subject, dataset, "fork", made=True),
        "second": first_batch(subject, dataset, "fork", made=True),
    }
