"""Reading services: where the work of a DataLoader2 is done, and by whom.

A service translates; the loader runs. DataLoader2 calls, in this order,

    initialize(pipe) -> pipe                        once, when the first epoch begins
    settings(settings) -> settings                  once: workers, world and the like, for the loader
    initialize_iteration(seeds) -> fn | None        at the start of each epoch; fn(pipe) -> pipe
    finalize_iteration()                            at its end
    finalize()                                      at shutdown

A service written by a user needs `initialize` and `finalize` only. Without `settings` the pipe that it returns, or any
other iterable, is iterated in the training process as it is.
"""

import base64
import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace.doors.dataloader2.seeds import SeedGenerator
from headrace.doors.dataloader2.workers import WorkerInfo, WorkerInitFn, WorkerResetFn
from headrace.doors.datapipes.graph import give_share, is_shard_point, list_dps, traverse_dps
from headrace.doors.datapipes.iter import SHARDING_PRIORITIES, FullSync
from headrace.doors.datapipes.lowering import is_torchs_shard
from headrace.doors.datapipes.nodes import is_user_object
from headrace.doors.torch.datapipes import check_distributed
from headrace.engine.autosave import Given
from headrace.engine.policy import Kind
from headrace.errors import BadOption, check_whole
from headrace.ops.counts import BadCount
from headrace.plan.world import World
from headrace.ranks.agree import Agreement
from headrace.tracebacks import short_errors, users_line

GraphChange = Callable[[Any], Any] | None
"""A function that gets a graph and returns it, or another one; None changes nothing."""
CONTEXTS = ("fork", "forkserver", "spawn")
STRANDS = 16
"""Enough for the workers of a large machine; a strand costs an open file or two, and the stream depends on it."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How the services want the graph to be run: most of it are options of `Loader`."""

    workers: int = 0
    kind: Kind = "inline"
    start_method: Literal["server", "fork", "forkserver", "spawn"] | None = None
    prefetch: int = 2
    window: int | None = None
    sharding: Literal["exact", "per-worker"] = "exact"
    strands: int = 1
    """How many copies of the user's objects run behind a shard point, each on its share. One in process; workers need
    as many as there are, and the stream depends on the number."""
    init: WorkerInitFn | None = None
    reset: WorkerResetFn | None = None
    world: World | None = None
    ends: Literal["short", "pad", "repeat", "drop"] = "short"
    agree: Callable[[int], int] | None = None
    """Returns rank 0's number on every rank."""
    autosave: Given | None = None


class ReadingServiceInterface:
    """What a service of your own looks like."""

    def initialize(self, datapipe: object) -> Any:
        """Prepare the graph; what is returned is iterated."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize(datapipe)")

    def finalize(self) -> None:
        """Give back what `initialize` took."""

    def initialize_iteration(self, seed_generator: SeedGenerator, iter_reset_fn: GraphChange = None) -> GraphChange:
        """An epoch begins; a function that is returned changes the graph."""
        return None

    def finalize_iteration(self) -> None:
        """An epoch has ended."""

    def _pause(self, pause_fn: GraphChange = None) -> GraphChange:
        return None

    def _resume(self, resume_fn: GraphChange = None) -> GraphChange:
        return None

    def _limit(self, num_batches: int | None, limit_fn: GraphChange = None) -> GraphChange:
        return None


class CheckpointableReadingServiceInterface(ReadingServiceInterface):
    """A service that has a state of its own to save, as bytes."""

    def checkpoint(self) -> bytes:
        raise NotImplementedError(f"{type(self).__name__} must define checkpoint()")

    def restore(self, datapipe: object, serialized_state: bytes) -> Any:
        """Like `initialize`, from a saved state."""
        raise NotImplementedError(f"{type(self).__name__} must define restore(datapipe, serialized_state)")


class InProcessReadingService(ReadingServiceInterface):
    """Everything runs in the training process; with `prefetch_cnt`, that many samples ahead, in a thread."""

    def __init__(
        self,
        prefetch_cnt: int = 0,
        init_fn: WorkerInitFn | None = None,
        reset_fn: WorkerResetFn | None = None,
    ) -> None:
        check_whole("prefetch_cnt", prefetch_cnt)
        self.prefetch_cnt = prefetch_cnt
        self.init_fn = init_fn
        self.reset_fn = reset_fn

    def initialize(self, datapipe: object) -> Any:
        return _apply_here(self.init_fn, "init_fn", datapipe)

    def initialize_iteration(self, seed_generator: SeedGenerator, iter_reset_fn: GraphChange = None) -> GraphChange:
        if self.reset_fn is None:
            return iter_reset_fn

        def reset(datapipe: object) -> Any:
            datapipe = datapipe if iter_reset_fn is None else iter_reset_fn(datapipe)
            return _apply_here(self.reset_fn, "reset_fn", datapipe, seed_generator.spawn(0))

        return reset

    def settings(self, settings: ReadSettings) -> ReadSettings:
        if not self.prefetch_cnt:
            return settings
        return replace(settings, workers=1, kind="thread", window=max(2, self.prefetch_cnt))


class MultiProcessingReadingService(ReadingServiceInterface):
    """Work after a shard point is divided among `num_workers` processes; the stream is the same for any number of them.

    An object of the user's behind a shard point runs in `strands` copies, whatever the number of workers, each on its
    share of the samples; more workers than that have nothing to do there. `sharding="per-worker"` is the other way: a
    whole graph per process, each with its own share and its own batches.
    """

    @short_errors
    def __init__(
        self,
        num_workers: int = 0,
        multiprocessing_context: Literal["fork", "forkserver", "spawn"] | None = None,
        worker_prefetch_cnt: int = 10,
        main_prefetch_cnt: int = 10,
        worker_init_fn: WorkerInitFn | None = None,
        worker_reset_fn: WorkerResetFn | None = None,
        *,
        sharding: Literal["exact", "per-worker"] = "exact",
        strands: int = STRANDS,
    ) -> None:
        if num_workers == 0:
            warnings.warn("Please use `InProcessReadingService` for num_workers=0", stacklevel=users_line())
        if multiprocessing_context is not None and multiprocessing_context not in CONTEXTS:
            raise BadCount(f"Please choose one available multiprocessing context from {list(CONTEXTS)}")
        if sharding not in ("exact", "per-worker"):
            raise BadOption(f"sharding must be 'exact' or 'per-worker', not {sharding!r}")
        check_whole("num_workers", num_workers)
        check_whole("worker_prefetch_cnt", worker_prefetch_cnt)
        check_whole("main_prefetch_cnt", main_prefetch_cnt)
        check_whole("strands", strands, 1)
        self.num_workers = num_workers
        self.multiprocessing_context = multiprocessing_context
        self.worker_prefetch_cnt = worker_prefetch_cnt
        self.main_prefetch_cnt = main_prefetch_cnt
        self.worker_init_fn = worker_init_fn
        self.worker_reset_fn = worker_reset_fn
        self.sharding = sharding
        self.strands = strands

    def initialize(self, datapipe: object) -> Any:
        return datapipe if self.num_workers else _apply_here(self.worker_init_fn, "worker_init_fn", datapipe)

    def initialize_iteration(self, seed_generator: SeedGenerator, iter_reset_fn: GraphChange = None) -> GraphChange:
        here = None if self.num_workers else self.worker_reset_fn
        return InProcessReadingService(reset_fn=here).initialize_iteration(seed_generator, iter_reset_fn)

    def settings(self, settings: ReadSettings) -> ReadSettings:
        if not self.num_workers:
            return replace(settings, strands=self.strands)
        ahead = self.num_workers * self.worker_prefetch_cnt + self.main_prefetch_cnt
        return replace(
            settings,
            workers=self.num_workers,
            kind="process",
            start_method=self.multiprocessing_context,
            prefetch=max(1, min(2, self.worker_prefetch_cnt)),
            window=max(self.num_workers + 1, ahead),
            sharding=self.sharding,
            strands=self.strands,
            init=self.worker_init_fn,
            reset=self.worker_reset_fn,
        )


def PrototypeMultiProcessingReadingService(*args: Any, **kwargs: Any) -> MultiProcessingReadingService:
    """The old name of MultiProcessingReadingService."""
    warnings.warn(
        "`PrototypeMultiProcessingReadingService` is deprecated, please use `MultiProcessingReadingService`.",
        FutureWarning,
        stacklevel=users_line(),
    )
    return MultiProcessingReadingService(*args, **kwargs)


class DistributedReadingService(ReadingServiceInterface):
    """Every rank of a torch.distributed job gets its own part, and all make the same number of steps.

    `policy` says what happens at an uneven end: short, pad, repeat or drop, as for Loader(ends=).
    """

    def __init__(self, timeout: float = 1800, policy: Literal["short", "pad", "repeat", "drop"] = "short") -> None:
        check_distributed(initialized=False)
        if not timeout > 0:
            raise BadOption(f"timeout must be a number of seconds > 0, not {timeout!r}")
        if policy not in ("short", "pad", "repeat", "drop"):
            raise BadOption(f"policy must be one of 'short', 'pad', 'repeat', 'drop', not {policy!r}")
        self.timeout = timeout
        self.policy = policy
        self._agreement: Agreement | None = None

    def initialize(self, datapipe: object) -> Any:
        check_distributed(initialized=True)
        world = World.detect()
        for node in list_dps(traverse_dps(datapipe)):
            if is_user_object(node) and is_shard_point(node) and not is_torchs_shard(node):
                give_share(node, world.share_ranks, world.share_rank, SHARDING_PRIORITIES.DISTRIBUTED)
        return datapipe if type(datapipe) is FullSync else FullSync(datapipe, self.timeout)

    def settings(self, settings: ReadSettings) -> ReadSettings:
        world = World.detect()
        self._agreement = self._agreement or Agreement.of(world, self.timeout)
        agree = None if self._agreement is None else self._agreement.broadcast
        return replace(settings, world=world, ends=self.policy, agree=agree)

    def finalize(self) -> None:
        if self._agreement is not None:
            self._agreement.close()
            self._agreement = None


class SequentialReadingService(CheckpointableReadingServiceInterface):
    """Several services, one inside the other: first the one over ranks, then the one over workers."""

    def __init__(self, *reading_services: Any) -> None:
        self.reading_services = list(reading_services)

    def __copy__(self) -> "SequentialReadingService":
        return SequentialReadingService(*[copy.copy(service) for service in self.reading_services])

    def initialize(self, datapipe: Any) -> Any:
        for service in self.reading_services:
            datapipe = service.initialize(datapipe)
        return datapipe

    def settings(self, settings: ReadSettings) -> ReadSettings:
        for service in self.reading_services:
            if hasattr(service, "settings"):
                settings = service.settings(settings)
        return settings

    def initialize_iteration(self, seed_generator: SeedGenerator, iter_reset_fn: GraphChange = None) -> GraphChange:
        for service in self.reading_services:
            iter_reset_fn = service.initialize_iteration(seed_generator, iter_reset_fn=iter_reset_fn)
        return iter_reset_fn

    def finalize_iteration(self) -> None:
        for service in reversed(self.reading_services):
            service.finalize_iteration()

    def finalize(self) -> None:
        for service in reversed(self.reading_services):
            service.finalize()

    def checkpoint(self) -> bytes:
        states = [
            service.checkpoint() if isinstance(service, CheckpointableReadingServiceInterface) else b""
            for service in self.reading_services
        ]
        return json.dumps([base64.b64encode(state).decode() for state in states]).encode()

    def restore(self, datapipe: Any, serialized_state: bytes) -> Any:
        for service, state in zip(self.reading_services, json.loads(serialized_state), strict=True):
            if isinstance(service, CheckpointableReadingServiceInterface):
                datapipe = service.restore(datapipe, base64.b64decode(state))
            else:
                datapipe = service.initialize(datapipe)
        return datapipe

    def _pause(self, pause_fn: GraphChange = None) -> GraphChange:
        return self._each("_pause", pause_fn)

    def _resume(self, resume_fn: GraphChange = None) -> GraphChange:
        return self._each("_resume", resume_fn)

    def _limit(self, num_batches: int | None, limit_fn: GraphChange = None) -> GraphChange:
        return self._each("_limit", limit_fn, num_batches)

    def _each(self, name: str, fn: GraphChange, *about: object) -> GraphChange:
        """Call the method of every service that has it; each gets the function that the one before returned."""
        for service in self.reading_services:
            if hasattr(service, name):
                fn = getattr(service, name)(*about, fn)
        return fn


def check_service(adapters: object, service: object) -> None:
    """Refuse what is no service; `adapters` is the argument before it, where a service may have been put."""
    if hasattr(adapters, "initialize"):
        raise BadOption("a reading service is given by name: DataLoader2(datapipe, reading_service=...)")
    if service is not None and not hasattr(service, "initialize"):
        raise BadOption(
            "reading_service= takes a service, such as MultiProcessingReadingService(num_workers=4), or an object with "
            f"initialize() and finalize(), not {type(service).__name__}"
        )


def keeps_state(service: object) -> bool:
    """Whether a service has a state of its own to save: of several in a row, whether one of them has."""
    if isinstance(service, SequentialReadingService):
        return any(map(keeps_state, service.reading_services))
    return isinstance(service, CheckpointableReadingServiceInterface)


def _apply_here(fn: Callable[..., Any] | None, name: str, datapipe: object, *more: object) -> Any:
    """The graph after a function of the user's (or none) has been called on it, in this process."""
    if fn is None:
        return datapipe
    returned = fn(datapipe, WorkerInfo(1, 0), *more)
    if returned is None:
        raise BadOption(f"{name} must return a pipe: the one that it was given, or another")
    return returned
