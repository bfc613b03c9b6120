"""Training on photographs: the folder of `photos`, and a small convolutional network whose step shares the cores."""

from benchmarks import training
from benchmarks.case import FASTER, OF_TIME, Case, Effort, Figures, Subject, Target
from benchmarks.training import Plan

PLAN = Plan("photos", files=1024, size=64)
CASE = Case(
    name="photos_step",
    question="How many photographs a second does a small network train on, beside 2 workers, on the same cores?",
    targets=(
        Target("training on photographs", "training samples/s", "images/s", FASTER),
        Target("the same, for a second of processor time", "training samples per cpu second", "samples", FASTER),
        Target("the same, share of the time spent waiting", "waiting", "%", OF_TIME, less=True, ranked=False),
    ),
    needs="media",
    door=True,
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    return training.measure(subject, effort, PLAN)
