"""Batches of one: the price of a message."""

from benchmarks.case import FASTER, ONE_PROCESS, Case, Effort, Figures, Subject, Target
from benchmarks.data import Pairs
from benchmarks.timing import timed

SIZE = 1
CASE = Case(
    name="single",
    question="How many batches of one `(int, float32)` a second?",
    targets=(Target("batches of 1", "batches/s", "batches/s", FASTER, at_least=20),),
    door=True,
    why=ONE_PROCESS,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(2000)
    dataset = Pairs(batches * SIZE)
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0][0], batches=batches, effort=effort).rate}
