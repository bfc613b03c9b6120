"""The replica-aware DataLoader: one step holds the micro-batches of all replicas of this process, for all iterations.

    dataset -> this process's block of the epoch's order (replicas_partition) -> combined batches -> collate

    combined batch = batch_size * device iterations * gradient accumulation * groups of replicas

Its layout, and the way back to the replicas, is in replicas_layout. The three modes load the same samples in the same
order; they differ in who loads and how far ahead:

    Sync             the caller's own thread, or `num_workers` processes
    Async            at least one process, over the end of an epoch too
    AsyncRebatched   the same; a worker loads `rebatched_worker_size` samples at a time and steps are put together after
"""

import enum
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.doors.replicas_feed import Ahead, Feed, Job
from headrace.doors.replicas_layout import Layout
from headrace.doors.replicas_options import Options
from headrace.doors.replicas_partition import Blocks, LeftOut, share_of
from headrace.errors import BadOption, NoLength
from headrace.pipe import Pipe
from headrace.plan.share import Policy, Share
from headrace.plan.world import World

log = logging.getLogger("headrace.replicas")


class DataLoaderMode(enum.StrEnum):
    """Who loads, and how far ahead."""

    Sync = "Sync"
    Async = "Async"
    AsyncRebatched = "AsyncRebatched"


class DataLoader:
    """Combined batches of this process. `ends` says how an epoch ends without drop_last: short, pad or repeat."""

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode | str = DataLoaderMode.Sync,
        async_options: Mapping[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Any = None,
        *,
        ends: Policy | None = None,
        sampler: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        generator: Any = None,
        **others: Any,
    ) -> None:
