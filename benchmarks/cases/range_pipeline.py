"""The smallest graph: numbers, divided among two workers, in batches of 32."""

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.cases.csv_pipeline import AGAINST
from benchmarks.timing import timed

SIZE = 32
WORKERS = 2
CASE = Case(
    name="range_pipeline",
    question="How many samples a second of `range(n).sharding_filter().batch(32)` with 2 workers?",
    targets=(Target("range pipeline, batches of 32", "samples/s", "samples/s", AGAINST, at_least=10),),
    subjects=AGAINST,
    needs="graph",
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = WORKERS * effort.count(1000)
    with subject.graph("range", [str(batches * SIZE)], int, size=SIZE, workers=WORKERS) as loader:
        return {"samples/s": SIZE * timed(loader, lambda batch: batch[0], batches=batches, effort=effort).rate}
