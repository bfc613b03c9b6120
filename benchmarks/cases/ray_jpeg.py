"""JPEG with Ray actors: what do the object store and the cluster's own processes cost, on the same two cores?

Worker processes run before and after the actors, in the same process and minute: the machine may slow down meanwhile.
The rates mean something on a quiet machine only: where others want the cores too, what they happen to take decides. So
beside them stand images per second of processor time, of all processes together with the cluster's own.
"""

from importlib.util import find_spec
from typing import Literal

import psutil

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.data import Jpegs
from benchmarks.timing import epoch, timed
from headrace import Loader, Pipe

SIZE = 32
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


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(50)
    dataset = Jpegs(batches * SIZE)
    before, before_per_cpu = rates(dataset, batches, effort, "process")
    if not INSTALLED:
        return {"process images/s": before}
    actors, actors_per_cpu = rates(dataset, batches, effort, "ray")
    after, after_per_cpu = rates(dataset, batches, effort, "process")
    return {
        "ray images/s": actors,
        "process images/s": (before + after) / 2,
        "share": 100 * actors / ((before + after) / 2),
        "share per cpu": 100 * actors_per_cpu / ((before_per_cpu + after_per_cpu) / 2),
    }


def rates(dataset: Jpegs, batches: int, effort: Effort, kind: Literal["process", "ray"]) -> tuple[float, float]:
    """Images a second, and images a second of processor time."""
    with Loader(Pipe.of(dataset).batch(SIZE).collate(), workers=2, kind=kind) as loader:
        epoch(loader, touch, batches)
        spent = processor_seconds()
        done = timed(loader, touch, batches=batches, effort=effort)
        images = SIZE * (done.batches + batches)  # a warm epoch comes before the timed ones
        return SIZE * done.rate, images / (processor_seconds() - spent)


def touch(batch: object) -> bool:
    return bool(batch[0, 0, 0, 0])  # type: ignore[index]


def processor_seconds() -> float:
    """Of this process and all below it."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(float(sum(member.cpu_times()[:2])) for member in family)
