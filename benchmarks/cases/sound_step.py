"""Training on sound: FLAC files of 10 s, two seconds of each from a random place, and a small network of filters."""

from benchmarks import training
from benchmarks.case import FASTER, OF_TIME, Case, Effort, Figures, Subject, Target
from benchmarks.training import Plan

PLAN = Plan("sound", files=2048, size=64)
CASE = Case(
    name="sound_step",
    question="How many windows of FLAC files a second does a small network train on, beside 2 workers?",
    targets=(
        Target("training on sound", "training samples/s", "windows/s", FASTER),
        Target("the same, without the step", "samples/s", "windows/s", FASTER),
        Target("the same, for a second of processor time", "training samples per cpu second", "samples", FASTER),
        Target("the same, share of the time spent waiting", "waiting", "%", OF_TIME, less=True, ranked=False),
    ),
    needs="media",
    door=True,
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    return training.measure(subject, effort, PLAN)
