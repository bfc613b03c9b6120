"""The replica-aware DataLoader: one step holds the micro-batches of all replicas of this process, for all iterations.

    dataset -> this process's block of the epoch's order (`partition`) -> combined batches -> collate

    combined batch = batch_size * device iterations * gradient accumulation * groups of replicas

Its layout, and the way back to the replicas, is in `layout`. The three modes load the same samples in the same
order; they differ in who loads and how far ahead:

    Sync             the caller's own thread, or `num_workers` processes
    Async            at least one process, over the end of an epoch too
    AsyncRebatched   the same; a worker loads `rebatched_worker_size` samples at a time and steps are put together after
"""

import enum
import logging
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal

from headrace.doors.replicas.feed import EpochLoader, Prefetching
from headrace.doors.replicas.layout import Layout
from headrace.doors.replicas.options import Options
from headrace.doors.replicas.partition import LeftOut
from headrace.doors.replicas.plan import LoaderArguments
from headrace.doors.torch.context import WorkerContext, WorkerSetup
from headrace.engine.autosave import EVERY, Given, check_alone
from headrace.engine.policy import Policy
from headrace.errors import BadOption, NoLength, meant
from headrace.plan.world import World
from headrace.tracebacks import short_errors

log = logging.getLogger("headrace.replicas")


class DataLoaderMode(enum.StrEnum):
    """Who loads, and how far ahead."""

    Sync = "Sync"
    Async = "Async"
    AsyncRebatched = "AsyncRebatched"


class DataLoader(EpochLoader):
    """Combined batches of this process.

    `ends` says how an epoch ends without drop_last, with equally many steps on all processes: "short" (every sample
    once, the last steps are shorter), "pad" or "repeat" (every step is full; `mask` tells which samples fill it up).
    """

    @short_errors
    def __init__(
        self,
        options: Options,
        dataset: object,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode | str = DataLoaderMode.Sync,
        async_options: Mapping[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: object = None,
        *,
        ends: Literal["short", "pad", "repeat"] | None = None,
        sampler: object = None,
        collate_fn: Callable[[Any], Any] | None = None,
        generator: object = None,
        worker_init_fn: Callable[[int], None] | None = None,
        autosave: Given | None = None,
        **others: object,
    ) -> None:
        if not isinstance(options, Options):
            raise BadOption(f"DataLoader() takes its Options first, not {type(options).__name__}")
        if autosave is not None:
            check_alone(options.world)  # (also where each process reads everything: they would write one file)
        options.freeze()
        # The arguments can be read back, as trainers do that build a loader again.
        self.options = options
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.persistent_workers = num_workers > 0 if persistent_workers is None else persistent_workers
        self.auto_distributed_partitioning = auto_distributed_partitioning
        self.mode = _mode(mode)
        self.batch_sampler = batch_sampler
        self.sampler = sampler
        self.collate_fn = collate_fn
        self.generator: Any = generator
        self.worker_init_fn = worker_init_fn
        sync = self.mode is DataLoaderMode.Sync
        if sync and async_options is not None:
            raise BadOption("async_options need mode=DataLoaderMode.Async or AsyncRebatched")
        ahead = None if sync else Prefetching.of(async_options)
        if rebatched_worker_size is not None and self.mode is not DataLoaderMode.AsyncRebatched:
            raise BadOption("rebatched_worker_size needs mode=DataLoaderMode.AsyncRebatched")
        if drop_last and ends is not None:
            raise BadOption(f"ends={ends!r} says how an epoch ends without drop_last; set drop_last=False")
        arguments = LoaderArguments(
            dataset, Layout.of(options), options.world if auto_distributed_partitioning else World(), batch_size,
            "drop" if drop_last else ends or "short", self._seed(), self.shuffle, sampler, batch_sampler, collate_fn,
            rebatched_worker_size,
        )  # fmt: skip
        plan = arguments.plan()
        self.combinedBatchSize: int | None = arguments.combined
        """Samples of one step; None where a batch_sampler without `batch_size`, or the data set, decides that."""
        policy: dict[str, Any] = {"workers": num_workers} if ahead is None else ahead.policy(max(1, num_workers))
        if num_workers:
            # An iterable data set is read by a single worker, whichever that is: to its code that one is number 0 of 1,
            # so that code that takes its worker's part takes everything.
            context = WorkerContext(
                dataset, collate_fn or list, worker_init_fn, arguments.seed, 1 if plan.stream else num_workers
            )
            policy["worker_init"] = _SetupAsWorkerZero(context) if plan.stream else WorkerSetup(context)
        super().__init__(plan, Policy.of(policy | _policy(others)), ahead, autosave)
        self._report()

    def __len__(self) -> int:
        """Steps of one epoch, the same on every process."""
        if self._steps is None:
            unknown = self.dataset if self.batch_sampler is None else self.batch_sampler
            raise NoLength(f"the length of this loader is not known: '{type(unknown).__name__}' has no len()")
        return self._steps

    @property
    def left_out(self) -> LeftOut | None:
        """What an epoch leaves out over all processes; None when that is not known in advance."""
        return self._plan.left_out

    @property
    def mask(self) -> list[bool] | None:
        """Of the batch handed out last: True for a sample, False for one that only fills the batch up. None for data
        sets without random access, whose batches are never filled up."""
        share, taken = self._plan.share, self._taken
        return None if share is None or not taken else share.block(taken - 1).mask()

    def _seed(self) -> int:
        seed = self.options.random_seed
        if seed is None and self.generator is not None:
            return int(self.generator.initial_seed())
        if seed is None and self.shuffle:
            log.info("shuffle without options.randomSeed(): all processes use the seed 0, and so does every run")
        return seed or 0

    def _report(self) -> None:
        """Say once, on one process, what an epoch leaves out."""
        left, world = self.left_out, self.loader.world
        if left is None or not (left.batches or left.samples):
            return
        log.log(
            logging.WARNING if world.rank == 0 else logging.DEBUG,
            "every epoch leaves out %s, which do not fill a step of %d process(es) x %d batches; "
            "drop_last=False with ends='short', 'pad' or 'repeat' keeps them",
            left,
            world.share_ranks,
            Layout.of(self.options).micro_batches,
        )


class _SetupAsWorkerZero(WorkerSetup):
    """The user's data set sees worker number 0, whichever worker this is."""

    def __call__(self, number: int) -> None:
        super().__call__(0)


def _mode(mode: DataLoaderMode | str) -> DataLoaderMode:
    try:
        return DataLoaderMode(mode)
    except ValueError:
        known = ", ".join(DataLoaderMode)
        hint = meant(str(mode).capitalize(), [one.value for one in DataLoaderMode])
        raise BadOption(f"mode must be one of {known}, not {mode!r}{hint}") from None


_NAMES = {
    "in_order": "ordered",
    "multiprocessing_context": "start_method",
    "prefetch_factor": "prefetch",
    "timeout": "timeout",
}


def _policy(others: dict[str, Any]) -> dict[str, Any]:
    """torch's arguments under headrace's names."""
    policy: dict[str, Any] = {}
    for name, value in others.items():
        if name == "pin_memory" and value:
            raise BadOption("pin_memory=True: this loader leaves pinning to the training loop; leave it out")
        if name in ("pin_memory", "pin_memory_device"):
            continue
        if name not in _NAMES:
            known = [*_NAMES, *signature(DataLoader).parameters]
            hint = f"; {EVERY.format(value=value)}" if name == "every" else meant(name, known)
            raise BadOption(f"DataLoader() has no argument {name!r}{hint}")
        if name == "multiprocessing_context" and hasattr(value, "get_start_method"):
            value = value.get_start_method()
        if value or name == "in_order":  # torch writes "none" as None, 0 or ""
            policy[_NAMES[name]] = value
    return policy
