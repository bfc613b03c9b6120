"""What the workers of torch's DataLoader have in common, and what makes a new process one of them.

A worker that never imports torch is never made to: what belongs to torch (one thread, its seed, the worker info) is set
at the moment when user code imports it.
"""

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.plan.seed import ImportWatcher


@dataclass(frozen=True, slots=True, eq=False)
class WorkerContext:
    """What all workers of one iterator have in common."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    init_fn: Callable[[int], None] | None
    base_seed: int
    count: int
    """How many workers there are, as the worker info says it; 0: the main process."""
    single_reader: bool = False
    """Only worker 0 reads the dataset, and reads all of it."""
    dataset_states: Mapping[str, Any] | None = None
    """The state that the map-style dataset of each worker, by number, goes on from."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerSetup:
    """Makes a new process a worker, in torch's order: seeds, worker info, the user's `worker_init_fn`."""

    context: WorkerContext

    def __call__(self, number: int) -> None:
        context = self.context

        def with_torch() -> None:
            from headrace.doors.torch.workers import enter

            enter(context, number)

        if "torch" in sys.modules:
            with_torch()
        else:
            ImportWatcher.watch("torch", with_torch)
        seed_others(context.base_seed, number)
        if context.init_fn is not None:
            context.init_fn(number)
        if context.dataset_states is not None and str(number) in context.dataset_states:
            context.dataset.load_state_dict(context.dataset_states[str(number)])


def seed_others(base: int, worker: int) -> None:
    """Seed `random` and numpy's global generator as torch does in a new worker."""
    random.seed(base + worker)
    np.random.seed(np.random.SeedSequence([worker, base]).generate_state(4))


def generators() -> tuple[tuple[type, ...], tuple[object, ...]]:
    """All types of random generators, and the global generators among their instances."""
    numpy = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence)
    types, instances = (random.Random, *numpy), (random._inst, np.random.mtrand._rand)
    if (torch := sys.modules.get("torch")) is None:
        return types, instances
    return (*types, torch.Generator), (*instances, torch.default_generator)
