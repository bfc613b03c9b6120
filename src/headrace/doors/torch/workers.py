"""What a worker of torch's DataLoader finds of torch around it: worker info, seed, one thread.

enter            makes this process a worker (see `context`)
EmulatedWorker   one of several workers that share a process, each with a copy of the dataset, a worker info and
                 generators (so a snapshot of 3 workers goes on in 1 process, or in none)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch.utils.data._utils import worker as torchs

from headrace.doors.torch.collate import use_everywhere
from headrace.doors.torch.context import WorkerContext, seed_others
from headrace.doors.torch.seeds import Globals
from headrace.errors import SnapshotRefused


def enter(context: WorkerContext, number: int) -> None:
    """Make this process a worker."""
    torch.set_num_threads(1)
    use_everywhere()
    if not context.emulated:
        torch.manual_seed(context.base_seed + number)
        torchs._worker_info = _info(context, number, context.dataset)


def _info(context: WorkerContext, number: int, dataset: Any) -> Any:
    """The worker info; only what every version of torch has is given."""
    place, count = (0, 1) if context.single_reader and number == 0 else (number, context.count)
    return torchs.WorkerInfo(id=place, num_workers=count, seed=context.base_seed + number, dataset=dataset)


class EmulatedWorker:
    """A worker that shares its process with others."""

    __slots__ = ("_globals", "_info", "collate_fn", "dataset")

    def __init__(self, context: WorkerContext, number: int) -> None:
        self._globals = Globals()
        self._info: Any = None
        if context.count == 0:
            self.dataset, self.collate_fn = context.dataset, context.collate_fn
            return
        # One copy for all three, so that a method of the dataset's stays a method of this dataset.
        try:
            self.dataset, self.collate_fn, init_fn = deepcopy((context.dataset, context.collate_fn, context.init_fn))
        except Exception as refused:
            raise SnapshotRefused(
                f"this snapshot was taken with num_workers={context.count}; to go on with another number each of them "
                f"needs a copy of the dataset, which cannot be copied: {refused}. Load it with that number"
            ) from refused
        self._info = _info(context, number, self.dataset)
        with self.at_work():
            torch.manual_seed(context.base_seed + number)
            seed_others(context.base_seed, number)
            if init_fn is not None:
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
