"""A folder of photographs: JPEG, a random part of each in 224 x 224, half of them mirrored, batches of 64.

Every subject draws new parts each epoch and gives uint8. Headrace has nothing set but `workers=2` and `resize="torch"`.
Beside it run two bare processes that read, decode, resize and mirror by the same libraries, whole images, and do
nothing else: before the loader and after it, because the speed of a core changes from second to second where machines
share it.
"""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import training
from benchmarks.bare import in_processes
from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.media import SIDE, random_box, write_photos
from benchmarks.training import Plan

SAME = ("headrace", "torch_same")
PLAN = Plan("photos", files=1024, size=64)
CASE = Case(
    name="photos",
    question="How many photographs a second, of a folder of JPEG files, cut at random, in batches of 64, by 2 workers?",
    targets=(
        Target("JPEG folder, random crops", "samples/s", "images/s", FASTER),
        Target("the same, torch with the same decoder", "samples/s", "images/s", SAME, at_least=1.3),
        Target("the same, of two bare processes", "of bare", "%", at_least=95, ranked=False),
        Target("the same, for a second of processor time", "samples per cpu second", "images", SAME),
        Target("the same, of two bare processes", "of bare per cpu", "%", at_least=95, ranked=False),
    ),
    needs="media",
    door=True,
    deadline=300.0,
    why={"*": "Decoding is nearly all of the work here: loaders that keep both cores busy are alike."},
)


def measure(subject: Subject, effort: Effort) -> Figures:
    return beside_bare(subject, effort, PLAN)


def beside_bare(subject: Subject, effort: Effort, plan: Plan) -> Figures:
    with training.loading(subject, effort, plan) as (loader, paths):
        training.epoch(loader, paths, training.nothing)
        training.epoch(loader, paths, training.nothing)
        before = bare(plan, effort.seconds / 2)
        rate = training.epochs(loader, paths, training.nothing, effort.seconds)
        after = bare(plan, effort.seconds / 2)
    return {
        "samples/s": rate.samples,
        "samples per cpu second": rate.per_cpu,
        "of bare": 100 * rate.samples / ((before.samples + after.samples) / 2),
        "of bare per cpu": 100 * rate.per_cpu / ((before.per_cpu + after.per_cpu) / 2),
    }


def bare(plan: Plan, seconds: float) -> training.Rate:
    """Two processes that decode and do nothing else."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        paths = write_photos(Path(folder), 128, **plan.files_are)
        rates = in_processes(2, lambda number: _decode(paths, plan.size, seconds, number, time.perf_counter))
        per_cpu = in_processes(2, lambda number: _decode(paths, plan.size, seconds, number, time.process_time))
    return training.Rate(sum(rates), sum(per_cpu) / 2, 0.0)


def _decode(paths: tuple[str, ...], size: int, seconds: float, number: int, clock: Callable[[], float]) -> float:
    import simplejpeg
    import torch

    from headrace.ops.media.boxes import Box
    from headrace.ops.media.pixels import mirrored, resized

    torch.set_num_threads(1)
    random.seed(number)
    batch = np.empty((size, SIDE, SIDE, 3), np.uint8)
    scratch = np.empty((SIDE, SIDE, 3), np.uint8)
    count = 0
    began = clock()
    while (took := clock() - began) < seconds / 2 or not count:
        pixels = simplejpeg.decode_jpeg(Path(paths[count % len(paths)]).read_bytes())
        box = Box(*random_box(*pixels.shape[:2]))
        row = batch[count % size]
        if random.random() < 0.5:
            mirrored(resized(pixels, box, (SIDE, SIDE), scratch, "torch"), row)
        else:
            resized(pixels, box, (SIDE, SIDE), row, "torch")
        count += 1
    return count / took
