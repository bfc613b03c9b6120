"""What a worker of torch's DataLoader finds of torch around it: worker info, seed, one thread.

enter      makes this process a worker (see `crew`)
Replica    a worker that is only played: several of them share a process, each with its own copy of the dataset, its
           own worker info and its own generators (a snapshot of 3 workers goes on in 1 process, or in none)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch.utils.data._utils import worker as torchs

from headrace.doors.torch.collate import use_everywhere
from headrace.doors.torch.crew import Crew, seed_others
from headrace.doors.torch.seeds import Globals
from headrace.doors.torch.watch import WorkerWatch
from headrace.errors import SnapshotRefused


def enter(crew: Crew, number: int) -> None:
    """Make this process a worker."""
    torch.set_num_threads(1)
    use_everywhere()
    if not crew.played:
        torch.manual_seed(crew.base_seed + number)
        torchs._worker_info = _info(crew, number, crew.dataset)
    if crew.watched:
        torch.initial_seed = torch.random.initial_seed = _initial_seed
        if WorkerWatch.now is not None:
            WorkerWatch.now.torch_came()


class _NoticedInfo(torchs.WorkerInfo):
    """A worker info that tells when somebody asks which worker this is."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "seed", "rng") and WorkerWatch.now is not None:
            WorkerWatch.now.asked = True
        return super().__getattribute__(name)


_NoticedInfo.__name__ = _NoticedInfo.__qualname__ = "WorkerInfo"
_initial_seed_of_torch = torch.initial_seed


def _initial_seed() -> int:
    """`torch.initial_seed`: another one in each worker."""
    if WorkerWatch.now is not None:
        WorkerWatch.now.asked = True
    return _initial_seed_of_torch()


def _info(crew: Crew, number: int, dataset: Any) -> Any:
    """The worker info; only what every version of torch has is given."""
    place, count = (0, 1) if crew.reader and number == 0 else (number, crew.count)
    kind = _NoticedInfo if crew.watched else torchs.WorkerInfo
    return kind(id=place, num_workers=count, seed=crew.base_seed + number, dataset=dataset)


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
        self._info = _info(crew, number, self.dataset)
        outside = Globals()
        torch.manual_seed(crew.base_seed + number)
        seed_others(crew.base_seed, number)
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
