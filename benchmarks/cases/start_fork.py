"""The first batch with forked workers: what the start costs when everything can be inherited."""

from benchmarks.case import OF_TIME, Case, Effort, Figures, Subject, Target
from benchmarks.cases.spawn_first_batch import SIZE, first_batch
from benchmarks.data import Pairs

CASE = Case(
    name="start_fork",
    question="How long does the first batch take with forked workers?",
    targets=(
        Target("first batch, forked workers", "first", "s", OF_TIME, less=True),
        Target("the same, second loader of the process", "second", "s", OF_TIME, less=True, ranked=False),
    ),
    why={
        "*": "Headrace imports its engine with the first loader of a process, not with the package, and that is half "
        "of this time; the second loader shows the rest."
    },
)


def measure(subject: Subject, effort: Effort) -> Figures:
    dataset = Pairs(SIZE * effort.count(100, least=4))
    return {
        "first": first_batch(subject, dataset, "fork"),
        "second": first_batch(subject, dataset, "fork"),
    }
