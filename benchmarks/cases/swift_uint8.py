"""SwiftLoader with images: both encode a batch in the worker, ours without making one string of bytes of it."""

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.data import Images
from benchmarks.subjects.swift_loader import consumer, measured
from benchmarks.timing import timed

SIZE = 64
LABEL = "SwiftLoader, 64x3x224x224 uint8"
CASE = Case(
    name="swift_uint8",
    question="How many batches of 64x3x224x224 uint8 a second through SwiftLoader?",
    targets=(
        Target(LABEL, "batches/s", "batches/s", ("headrace", "swift"), at_least=1.0)
        if measured()
        else Target(f"{LABEL} (swift-loader: not installed)", "batches/s", "batches/s"),
    ),
    subjects=("headrace", "swift") if measured() else ("headrace",),
    needs="consumer",
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(80)
    with consumer(subject, Images, {"length": batches * SIZE, "dtype": "uint8"}, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0, 0, 0, 0], batches=batches, effort=effort).rate}
