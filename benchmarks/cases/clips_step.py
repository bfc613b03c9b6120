"""Training on video: 16 frames at random places of h264 films of a minute, and a small network that sees them."""

from benchmarks import training
from benchmarks.case import FASTER, OF_TIME, Case, Effort, Figures, Subject, Target
from benchmarks.training import Plan

PLAN = Plan("clips", files=64, size=4)
CASE = Case(
    name="clips_step",
    question="How many clips (16 random frames of a film of 60 s, 320 x 240) a second does a small network train on?",
    targets=(
        Target("training on clips of video", "training samples/s", "clips/s", FASTER),
        Target("the same, without the step", "samples/s", "clips/s", FASTER),
        Target("the same, for a second of processor time", "training samples per cpu second", "samples", FASTER),
        Target("the same, share of the time spent waiting", "waiting", "%", OF_TIME, less=True, ranked=False),
    ),
    needs="media",
    door=True,
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    return training.measure(subject, effort, PLAN)
