"""SwiftLoader with small samples: what a batch costs when there is nothing in it."""

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.subjects.swift_loader import consumer, measured
from benchmarks.timing import timed

SIZE = 64
LABEL = "SwiftLoader, batches of 64 `(int, float)`"
CASE = Case(
    name="swift_small",
    question="How many batches of 64 `(int, float)` a second through SwiftLoader?",
    targets=(
        Target(LABEL, "batches/s", "batches/s", ("headrace", "swift"), at_least=1.0)
        if measured()
        else Target(f"{LABEL} (swift-loader: not installed)", "batches/s", "batches/s"),
    ),
    subjects=("headrace", "swift") if measured() else ("headrace",),
    needs="consumer",
)


class Rows:
    """`(int, float)`: swift-loader's collating refuses numpy's own numbers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> tuple[int, float]:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return index, index / 2


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(1000)
    with consumer(subject, Rows, {"length": batches * SIZE}, size=SIZE, workers=2) as loader:
        return {"batches/s": timed(loader, lambda batch: batch[0][0], batches=batches, effort=effort).rate}
