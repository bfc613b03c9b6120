"""What a worker of torch's DataLoader finds around it: worker info, seeds, one thread, the user's `worker_init_fn`.

Setup      runs first in a new worker process: everything above, in torch's order
Replica    a worker that is only played: several of them share a process, each with its own copy of the dataset, its
           own worker info and its own generators (a snapshot of 3 workers goes on in 1 process, or in none)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data._utils import worker as torchs

from headrace.doors.torch_collate import use_everywhere
from headrace.doors.torch_seeds import Globals, seed_worker
from headrace.errors import SnapshotRefused


@dataclass(frozen=True, slots=True, eq=False)
class Crew:
    """What all workers of one iterator have in common."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    init_fn: Callable[[int], None] | None
    base_seed: int
    count: int
    """How many workers there are, as the worker info tells it; 0: the main process."""
    played: bool = False
    """Workers are played: processes serve any number of them."""
    reader: bool = False
    """Only worker 0 reads the dataset, and reads all of it."""

    def info(self, number: int, dataset: Any) -> Any:
        """The worker info; only what every version of torch has is given."""
        place, count = (0, 1) if self.reader and number == 0 else (number, self.count)
        return torchs.WorkerInfo(id=place, num_workers=count, seed=self.base_seed + number, dataset=dataset)


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """Makes a new process a worker."""

    crew: Crew

    def __call__(self, number: int) -> None:
        torch.set_num_threads(1)
        use_everywhere()
        crew = self.crew
        if crew.played:
            return
        seed_worker(crew.base_seed, number)
        torchs._worker_info = crew.info(number, crew.dataset)
        if crew.init_fn is not None:
            crew.init_fn(number)


class Replica:
    """One played worker."""

    __slots__ = ("_globals", "_info", "collate_fn", "dataset")

    def __init__(self, crew: Crew, number: int) -> None:
        if crew.count == 0:
            self.dataset, self.collate_fn, self._info = crew.dataset, crew.collate_fn, None
            self._globals = Globals()
            return
        # One copy for all three, so that a method of the dataset's stays a method of this dataset.
        try:
            self.dataset, self.collate_fn, init_fn = deepcopy((crew.dataset, crew.collate_fn, crew.init_fn))
        except Exception as refused:
            raise SnapshotRefused(
                f"this snapshot was taken with num_workers={crew.count}; to go on with another number each of them "
                f"needs a copy of the dataset, which cannot be copied: {refused}. Load it with that number"
            ) from refused
        self._info = crew.info(number, self.dataset)
        outside = Globals()
        seed_worker(crew.base_seed, number)
        self._globals = Globals()
        outside.put_back()
        if init_fn is not None:
            with self.at_work():
                init_fn(number)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside, `get_worker_info()` and the global generators are this worker's."""
        outside, info = Globals(), torchs._worker_info
        self._globals.put_back()
        torchs._worker_info = self._info
        try:
            yield
        finally:
            self._globals = Globals()
            torchs._worker_info = info
            outside.put_back()
