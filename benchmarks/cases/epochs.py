"""Short epochs: what the turn from one epoch to the next costs with workers that stay."""

from benchmarks.case import ONE_PROCESS, TIMES_LESS, Case, Effort, Figures, Subject, Target
from benchmarks.data import Pairs
from benchmarks.timing import timed

SIZE = 64
BATCHES = 20
CASE = Case(
    name="epochs",
    question="How long is an epoch of 20 batches of 64 `(int, float32)`?",
    targets=(Target("epochs of 20 small batches", "ms an epoch", "ms", TIMES_LESS, at_least=7, less=True),),
    door=True,
    why=ONE_PROCESS,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    staying = getattr(subject, "staying", lambda: subject)  # (the workers of others stay anyway)
    with staying().batches(Pairs(BATCHES * SIZE), size=SIZE, workers=2) as loader:
        took = timed(loader, lambda batch: batch[0][0], batches=BATCHES, effort=effort)
    return {"ms an epoch": 1e3 * took.seconds / took.epochs}
