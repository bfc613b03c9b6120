"""Small batches: what a loader costs when the samples cost nothing."""

from benchmarks.case import FASTER, ONE_PROCESS, Case, Effort, Figures, Subject, Target
from benchmarks.data import Pairs
from benchmarks.timing import timed

SIZE = 64
CASE = Case(
    name="small",
    question="How many batches of 64 `(int, float32)` a second?",
    targets=(Target("batches of 64 `(int, float32)`", "batches/s", "batches/s", FASTER, at_least=15),),
    door=True,
    why=ONE_PROCESS,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(1000)
    dataset = Pairs(batches * SIZE)
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0][0], batches=batches, effort=effort).rate}
