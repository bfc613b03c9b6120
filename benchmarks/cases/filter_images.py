"""A filter before the batch: samples are dropped, the rest regrouped, and batches are still made in the workers.

Half of the images stay. torch has no filter, so its side is what its users write: an iterable data set that each worker
filters for itself.
"""

from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.data import Images, keep_half
from benchmarks.timing import timed

SIZE = 64
CASE = Case(
    name="filter_images",
    question="How many batches of 64x3x224x224 float32 a second, when half of the images are filtered out first?",
    targets=(Target("`filter` before `batch`, float32 images", "batches/s", "batches/s", FASTER, at_least=3),),
    needs="filtered",
    peers=False,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = 2 * effort.count(15)  # even: two workers that filter for themselves both end with a full batch
    dataset = Images(2 * batches * SIZE, "float32")
    with subject.filtered(dataset, keep_half, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0, 0, 0, 0], batches=batches, effort=effort).rate}
