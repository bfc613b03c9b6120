"""AsynchronousDataAccessor: any iterable, loaded by a process of its own ahead of the training loop.

A thin front: the loader's workers, window and shared memory do the work. So what arrives stays valid as long as it is
held and may change its shape and type from item to item, and an error arrives as the exception that was raised.
"""

from headrace.doors.replicas.feed import EpochLoader, LoadPlan, Prefetching, SharingStrategy, one_by_one
from headrace.doors.replicas.loader import DataLoader, DataLoaderMode
from headrace.doors.replicas.tensors import AsTensors
from headrace.doors.replicas.tree import spread
from headrace.engine.policy import Policy
from headrace.errors import BadOption, NoLength
from headrace.pipe.graph import Pipe
from headrace.plan.share import Share
from headrace.tracebacks import short_errors


class AsynchronousDataAccessor(EpochLoader):
    """Items of `dataset`, up to `buffer_size` of them loaded ahead; `rebatched_size` joins and cuts batches."""

    @short_errors
    def __init__(
        self,
        dataset: object,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        ahead = Prefetching(buffer_size, miss_sleep_time_in_ms, load_indefinitely, early_preload, sharing_strategy)
        super().__init__(_plan(dataset, rebatched_size), Policy.of(ahead.policy(1)), ahead)

    def __len__(self) -> int:
        if self._steps is None:
            raise NoLength("the length of this accessor is not known: what it reads has no len(), or is rebatched")
        return self._steps


def _plan(dataset: object, rebatched_size: int | None) -> LoadPlan:
    if isinstance(dataset, AsynchronousDataAccessor) or (
        isinstance(dataset, DataLoader) and dataset.mode is not DataLoaderMode.Sync
    ):
        raise BadOption(
            f"this {type(dataset).__name__} already uses an AsynchronousDataAccessor internally; iterate it directly"
        )
    if isinstance(dataset, DataLoader):
        if rebatched_size is not None:
            raise BadOption("rebatched_size: a DataLoader's batches have the size of a step already; leave it out")
        return dataset._plan
    pipe = Pipe.of(dataset)
    if rebatched_size is not None:
        return LoadPlan(pipe.flatmap(spread).batch(rebatched_size).collate(), AsTensors())
    if pipe.indexed(0, 0) is not None:
        return LoadPlan(one_by_one(pipe), share=Share(len(pipe), 1))
    return LoadPlan(pipe)
