"""The consumer's own time: what the training thread pays for each batch, whatever the workers do meanwhile."""

from benchmarks.case import TIMES_LESS, Case, Effort, Figures, Subject, Target
from benchmarks.data import Pairs
from benchmarks.timing import timed

SIZE = 64
CASE = Case(
    name="ticket_cost",
    question="How much processor time of the consuming thread does a batch of 64 `(int, float32)` take?",
    targets=(
        Target("consumer time a batch", "us a batch", "us", at_most=30, less=True),
        Target("consumer time a batch, times less", "us a batch", "us", TIMES_LESS, less=True),
    ),
    peers=False,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(1000)
    with subject.batches(Pairs(batches * SIZE), size=SIZE, workers=2) as loader:
        took = timed(loader, lambda batch: batch[0][0], batches=batches, effort=effort)
    return {"us a batch": 1e6 * took.thread_seconds / took.batches}
