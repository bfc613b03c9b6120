"""How cost grows: the same loader at several sizes of one thing, with the same four figures at each.

    consumer us      processor time of the consuming thread for a batch
    memory MB        what all processes together have beyond what there was before the loader, files left out
    start ms         from `iter()` to the first batch
    snapshot bytes   the state between two batches, as JSON

A figure is called `SIZE NAME`, such as `4 start ms`, so that a case of the harness holds a whole curve.
"""

import gc
import json
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.case import Case, Effort, Figures, Target
from benchmarks.machine import private_memory
from headrace import Loader, Pipe

COSTS = {"consumer us": "us", "memory MB": "MB", "start ms": "ms", "snapshot bytes": "bytes"}
LABELS = {
    "consumer us": "consumer's time for a batch",
    "memory MB": "memory of all processes",
    "start ms": "first batch",
    "snapshot bytes": "snapshot",
}


class Blocks:
    """Arrays of so many bytes, of which making one costs an index."""

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.block = np.ones(size, np.uint8)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> npt.NDArray[np.uint8]:
        return self.block


def case(name: str, question: str, sizes: Iterable[int], without: tuple[str, ...] = ()) -> Case:
    targets = tuple(
        Target(f"{size:,}: {LABELS[cost]}", f"{size} {cost}", unit, less=True, ranked=False)
        for cost, unit in COSTS.items()
        if cost not in without
        for size in sizes
    )
    return Case(name=name, question=question, targets=targets, subjects=("headrace",), deadline=300.0)


def point(pipe: Pipe[Any], effort: Effort, least: int = 8, **options: Any) -> Figures:
    """The four figures of one loader, over as many batches as fit into a part of the time."""
    gc.collect()
    before = private_memory()
    most = count = 0
    with Loader(pipe, seed=1, **options) as loader:
        began = time.perf_counter()
        batches = iter(loader)
        first = next(batches)
        start = time.perf_counter() - began
        del first
        thread, began = time.thread_time(), time.perf_counter()
        for batch in batches:
            touch(batch)
            del batch  # as a training step does: kept, it would keep its slot
            count += 1
            if count >= least and time.perf_counter() - began > effort.seconds / 4:
                break
        spent = time.thread_time() - thread
        most = max(most, private_memory())
        snapshot = len(json.dumps(loader.state_dict()))
    return {
        "consumer us": 1e6 * spent / count,
        "memory MB": max(0.01, (most - before) / 1e6),
        "start ms": 1e3 * start,
        "snapshot bytes": float(snapshot),
    }


def touch(batch: Any) -> Any:
    """One byte of each page, as a step that reads the batch would."""
    return batch.reshape(-1)[::4096].sum() if isinstance(batch, np.ndarray) else batch[0]


def named(size: int, costs: Figures) -> Figures:
    return {f"{size} {cost}": value for cost, value in costs.items()}
