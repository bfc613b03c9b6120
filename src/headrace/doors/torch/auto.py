"""`num_workers="auto"`: another number each epoch, until the best one is found.

Batch k is made by worker k mod num_workers, so the number changes between epochs only, and random values that are drawn
in workers change with it, as they do in torch (`reproducible=True` has the same ones for any number).
"""

import time
import weakref
from typing import TYPE_CHECKING, Any

from headrace.engine.policy import Policy
from headrace.engine.tuning import Tuner, available
from headrace.loader import Loader

if TYPE_CHECKING:
    from headrace.doors.torch.loader import DataLoader


def without_auto(arguments: dict[str, Any]) -> tuple[dict[str, Any], Tuner | None]:
    """The arguments with a number in place of "auto", and the tuner if there was one."""
    if arguments.get("num_workers") != "auto":
        return arguments, None
    cores = available()
    return {**arguments, "num_workers": cores}, Tuner(Policy(workers=cores, kind="process"), cores, first=cores)


class EpochTimer:
    """Measures an epoch, and sets the number of workers for the next one."""

    def __init__(self, loader: "DataLoader[Any]", engine: Loader[Any]) -> None:
        self._loader = weakref.ref(loader)
        self._engine = engine
        self.start()
        # Workers that stay are started once: that is not held against their number.
        self.started = not loader.persistent_workers

    def start(self) -> None:
        self.started = True
        stats = self._engine.stats()
        self._began, self._batches, self._waited = time.perf_counter(), stats.batches, stats.waited

    def end(self) -> None:
        """Everything was delivered. An epoch of very few batches says nothing."""
        loader, stats, took = self._loader(), self._engine.stats(), time.perf_counter() - self._began
        batches = stats.batches - self._batches
        if loader is None or loader._tuner is None or batches < 2 * loader.num_workers:
            return
        if loader._tuner.learn(batches / took, (stats.waited - self._waited) / took):
            loader.num_workers = loader._tuner.workers
            loader._iterator = None  # persistent workers are as many as they were
