"""JPEG with Ray actors: what do the object store and the cluster's own processes cost, on the same two cores?

Worker processes run before and after the actors, in the same process and minute: the machine may slow down meanwhile.
"""

from importlib.util import find_spec
from typing import Literal

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.data import Jpegs
from benchmarks.timing import timed
from headrace import Loader, Pipe

SIZE = 32
INSTALLED = find_spec("ray") is not None
CASE = Case(
    name="ray_jpeg",
    question="Which share of the worker processes' JPEG images a second do Ray actors reach?",
    targets=(
        (
            Target("JPEG decode by Ray actors: share of worker processes' rate", "share", "%", at_least=80),
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
    before = rate(dataset, batches, effort, "process")
    if not INSTALLED:
        return {"process images/s": before}
    actors = rate(dataset, batches, effort, "ray")
    processes = (before + rate(dataset, batches, effort, "process")) / 2
    return {"ray images/s": actors, "process images/s": processes, "share": 100 * actors / processes}


def rate(dataset: Jpegs, batches: int, effort: Effort, kind: Literal["process", "ray"]) -> float:
    with Loader(Pipe.of(dataset).batch(SIZE).collate(), workers=2, kind=kind) as loader:
        return SIZE * timed(loader, lambda batch: batch[0, 0, 0, 0], batches=batches, effort=effort).rate
