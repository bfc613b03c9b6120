"""Many small arrays: the price of one more array in a batch."""

from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.data import Records
from benchmarks.timing import timed

SIZE = 16
CASE = Case(
    name="arrays",
    question="How many batches of 16 dicts of 16 small arrays a second?",
    targets=(Target("16 samples of 16 small arrays", "batches/s", "batches/s", FASTER, at_least=15),),
    peers=False,
    door=True,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(500)
    dataset = Records(batches * SIZE)
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch["field0"][0, 0], batches=batches, effort=effort).rate}
