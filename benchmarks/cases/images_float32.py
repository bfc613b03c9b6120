"""Images as floats: how often a batch of 38.5 MB is copied on its way."""

from benchmarks.case import FASTER, ONE_PROCESS, Case, Effort, Figures, Subject, Target
from benchmarks.data import Images
from benchmarks.timing import timed

SIZE = 64
CASE = Case(
    name="images_float32",
    question="How many batches of 64x3x224x224 float32 a second?",
    targets=(Target("64x3x224x224 float32", "batches/s", "batches/s", FASTER, at_least=3.5),),
    door=True,
    why=ONE_PROCESS,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(40)
    dataset = Images(batches * SIZE, "float32")
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0, 0, 0, 0], batches=batches, effort=effort).rate}
