"""Images as bytes: how often a batch of 9.6 MB is copied on its way."""

from benchmarks.case import FASTER, ONE_PROCESS, Case, Effort, Figures, Subject, Target
from benchmarks.data import Images
from benchmarks.timing import timed

SIZE = 64
CASE = Case(
    name="images_uint8",
    question="How many batches of 64x3x224x224 uint8 a second?",
    targets=(Target("64x3x224x224 uint8", "batches/s", "batches/s", FASTER, at_least=3.5),),
    door=True,
    why=ONE_PROCESS,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(80)
    dataset = Images(batches * SIZE, "uint8")
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0, 0, 0, 0], batches=batches, effort=effort).rate}
