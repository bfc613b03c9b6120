"""JPEG with Ray actors: what do the object store and the cluster's own processes cost, on the same two cores?

Epochs by actors and by worker processes take turns, because the speed of a core changes from second to second where
machines share it. They begin when both have run for a while: a cluster that has just started is busy with itself. (It
runs while the worker processes have their turn, too; idle, it takes two or three percent of a core.) Beside the rates
stand images per second of processor time, of all processes together with the cluster's own.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import psutil

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.cases.jpeg import SIZE, touch
from benchmarks.data import Jpegs
from benchmarks.timing import epoch
from headrace import Loader, Pipe

SETTLED, TIMED = 1, 3
"""Times the seconds of a measurement."""
INSTALLED = find_spec("ray") is not None
CASE = Case(
    name="ray_jpeg",
    question="Which share of the worker processes' JPEG images a second do Ray actors reach?",
    targets=(
        (
            Target("JPEG decode by Ray actors: share of worker processes' rate", "share", "%", at_least=80),
            Target("the same, per second of processor time", "share per cpu", "%", at_least=80),
            Target("JPEG decode by Ray actors", "ray images/s", "images/s"),
        )
        if INSTALLED
        else (Target("JPEG decode by worker processes (ray: not installed)", "process images/s", "images/s"),)
    ),
    subjects=("headrace",),
)


@dataclass
class Turns:
    """What the epochs of one kind have taken so far."""

    loader: Loader[Any]
    seconds: float = 0.0
    processor_seconds: float = 0.0
    images: int = 0

    def take(self, batches: int) -> None:
        spent = processor_seconds()
        self.seconds += epoch(self.loader, touch, batches)
        self.processor_seconds += processor_seconds() - spent
        self.images += batches * SIZE


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(50)
    pipe = Pipe.of(Jpegs(batches * SIZE)).batch(SIZE).collate()
    with ExitStack() as stack:
        process, *others = (
            stack.enter_context(Loader(pipe, workers=2, kind=kind))
            for kind in (("process", "ray") if INSTALLED else ("process",))
        )
        for until in (SETTLED * effort.seconds, TIMED * effort.seconds):
            own, *actors = kinds = [Turns(process), *map(Turns, others)]
            while sum(kind.seconds for kind in kinds) < until * len(kinds):
                for kind in kinds:
                    kind.take(batches)
    found = {"process images/s": own.images / own.seconds}
    for ray in actors:
        found["ray images/s"] = ray.images / ray.seconds
        found["share"] = 100 * own.seconds / ray.seconds
        found["share per cpu"] = 100 * own.processor_seconds / ray.processor_seconds
    return found


def processor_seconds() -> float:
    """Of this process and all below it."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(float(sum(member.cpu_times()[:2])) for member in family)
