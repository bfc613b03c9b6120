"""AsynchronousDataAccessor: any iterable, loaded by a process of its own ahead of the training loop.

A thin front: the loader's workers, window and shared memory do the work. So what arrives stays valid as long as it is
held and may change its shape and type from item to item, and an error arrives as the exception that was raised.
"""

from collections.abc import Iterator
from typing import Any

from headrace.doors.replicas.feed import EpochFeeder, LoadingJob, Prefetching, SharingStrategy, one_by_one
from headrace.doors.replicas.loader import DataLoader, DataLoaderMode
from headrace.doors.replicas.tensors import AsTorchHasIt
from headrace.doors.replicas.tree import spread
from headrace.errors import BadOption, NoLength
from headrace.pipe.graph import Pipe


class AsynchronousDataAccessor:
    """Items of `dataset`, up to `buffer_size` of them loaded ahead; `rebatched_size` joins and cuts batches."""

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
        job = _job(dataset, rebatched_size)
        self._steps = job.steps
        self._feed = EpochFeeder(job, ahead.policy(1), ahead)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._feed)

    def __len__(self) -> int:
        if self._steps is None:
            raise NoLength("the length of this accessor is not known: what it reads has no len(), or is rebatched")
        return self._steps

    def terminate(self) -> None:
        """Stop the process; iterating again is an error. Calling it twice is not."""
        self._feed.close()


def _job(dataset: object, rebatched_size: int | None) -> LoadingJob:
    if isinstance(dataset, AsynchronousDataAccessor) or (
        isinstance(dataset, DataLoader) and dataset.mode is not DataLoaderMode.Sync
    ):
        raise BadOption(
            f"this {type(dataset).__name__} already uses an AsynchronousDataAccessor internally; iterate it directly"
        )
    if isinstance(dataset, DataLoader):
        if rebatched_size is not None:
            raise BadOption("rebatched_size: a DataLoader's batches have the size of a step already; leave it out")
        return dataset._job
    pipe = Pipe.of(dataset)
    if rebatched_size is not None:
        return LoadingJob(pipe.flatmap(spread).batch(rebatched_size).collate(), AsTorchHasIt())
    if pipe.indexed(0, 0) is not None:
        return LoadingJob(one_by_one(pipe), steps=pipe.length(), certain=True)
    return LoadingJob(pipe, steps=pipe.length())
