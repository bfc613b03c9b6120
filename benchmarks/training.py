"""A training program in small: a model, its step on a batch, and how long it waits for the next batch.

The step runs in the process that takes the batches, with as many threads as torch has by default, on the cores that
the loader's workers use too: what a loader spends is taken from the step.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import media
from benchmarks.case import Effort, Epochs, Figures, Subject

Step = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of what is asked of a loader."""

    kind: str
    files: int
    size: int
    workers: int = 2
    files_are: dict[str, int] = field(default_factory=dict)
    """Options of what writes the files: `width` and `height` of photographs."""


class Rate(NamedTuple):
    """Samples a second, a second of processor time of all processes, and the share of the time spent waiting."""

    samples: float
    per_cpu: float
    waiting: float


def measure(subject: Subject, effort: Effort, plan: Plan) -> Figures:
    """Samples a second of the loader alone, then of training, and the share of training that is spent waiting."""
    with loading(subject, effort, plan) as (loader, paths):
        epoch(loader, paths, nothing)  # warm
        alone = epochs(loader, paths, nothing, effort.seconds)
        step = Trainer(plan.kind).step
        epoch(loader, paths, step)
        training = epochs(loader, paths, step, effort.seconds)
    return {
        "samples/s": alone.samples,
        "samples per cpu second": alone.per_cpu,
        "training samples/s": training.samples,
        "training samples per cpu second": training.per_cpu,
        "waiting": 100 * training.waiting,
    }


@contextmanager
def loading(subject: Subject, effort: Effort, plan: Plan) -> Iterator[tuple[Epochs, list[str]]]:
    """The subject at work on files that are written before, and the paths that each epoch must give."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        count = effort.count(plan.files // plan.size, least=4) * plan.size
        job = media.job(plan.kind, Path(folder), count, **plan.files_are)
        with subject.media(job, size=plan.size, workers=plan.workers) as loader:
            yield loader, sorted(job.paths)


class Processor:
    """Seconds of processor time that this process and all below it have used since this was made.

    The rate that follows from them says what a loader spends, also where other programs keep the cores busy.
    """

    def __init__(self) -> None:
        self.before = processor_seconds()

    def spent(self) -> float:
        return processor_seconds() - self.before


def processor_seconds() -> float:
    import psutil

    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(float(sum(member.cpu_times()[:2])) for member in family)


def nothing(array: Any) -> object:
    return array.reshape(-1)[0]


def epochs(loader: Epochs, paths: list[str], step: Step, seconds: float) -> Rate:
    """What whole epochs came to, over so many seconds at least."""
    count, waited = 0, 0.0
    processor = Processor()
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        waited += epoch(loader, paths, step)
        count += len(paths)
    return Rate(count / spent, count / processor.spent(), waited / spent)


def epoch(loader: Epochs, paths: list[str], step: Step) -> float:
    """Seconds spent waiting for batches, in an epoch that must give each file once."""
    waited, seen = 0.0, []
    batches = iter(loader)
    while True:
        began = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - began
        if batch is None:
            break
        names, array = batch
        array = array[0] if isinstance(array, tuple | list) else array  # (clips come with their rate)
        seen += [str(name) for name in names]
        step(array)
    if sorted(seen) != paths:
        raise AssertionError(f"an epoch gave {len(seen)} samples, {len({*seen})} different, instead of {len(paths)}")
    return waited


class Trainer:
    """Three convolutions and a linear layer, by plain gradient descent; the labels are beside the point."""

    def __init__(self, kind: str) -> None:
        from torch import nn, optim

        self.kind = kind
        conv = nn.Conv1d if kind == "sound" else nn.Conv2d
        wide, layers = (1, 16) if kind == "sound" else (3, 4), []
        at = wide[0]
        for width in (16, 32, 64):
            layers += [conv(at, width, 2 * wide[1] - 1, stride=wide[1]), nn.ReLU()]
            at = width
        pool = nn.AdaptiveAvgPool1d(1) if kind == "sound" else nn.AdaptiveAvgPool2d(1)
        self.model = nn.Sequential(*layers, pool, nn.Flatten(), nn.Linear(64, 10))
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, array: Any) -> float:
        import torch

        tensor = torch.as_tensor(array)
        if self.kind == "sound":
            inputs = tensor[:, None]
        else:
            inputs = tensor.reshape(-1, *tensor.shape[-3:]).permute(0, 3, 1, 2).float() / 255
        self.optimizer.zero_grad()
        loss = self.model(inputs).logsumexp(1).mean()
        loss.backward()
        self.optimizer.step()
        return float(loss.item())
