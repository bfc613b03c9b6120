"""EpochLoader: a Loader as the replica-aware loader and the accessor run it, epoch by epoch.

Sync    an epoch begins when its first batch is asked for
Async   the first epoch begins when the loader is made, whatever `early_preload` says; each later one when the last
        batch of the epoch before is handed out (`load_indefinitely`). So workers never stand still.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

from headrace.doors.replicas.partition import LeftOut
from headrace.engine.autosave import Given
from headrace.engine.epoch import Epoch
from headrace.engine.policy import Policy
from headrace.engine.wire.words import COLLATE_WORDS, DATASET_CURE, WITHOUT_SKIPS, Words
from headrace.errors import BadOption, meant
from headrace.loader import Loader, Stats
from headrace.pipe.graph import Pipe
from headrace.plan.share import Share
from headrace.plan.world import World
from headrace.tracebacks import shorten

WORDS = Words(
    there=DATASET_CURE,
    others=(
        *COLLATE_WORDS,
        *WITHOUT_SKIPS,
        ("look at it with workers=0", "look at it with num_workers=0"),
    ),
)


class SharingStrategy(enum.StrEnum):
    """How the loading process starts. The data travels through shared memory with all of them."""

    SharedMemory = "SharedMemory"
    FileSystem = "FileSystem"
    Fork = "Fork"
    ForkServer = "ForkServer"


_START_METHODS = {"SharedMemory": "spawn", "FileSystem": "spawn", "Fork": "fork", "ForkServer": "server"}


@dataclass(frozen=True, slots=True)
class Prefetching:
    """How far loading runs ahead of training."""

    buffer_size: int = 3
    miss_sleep_time_in_ms: float = 0.1
    """Accepted and not used: nothing polls here, so nothing sleeps."""
    load_indefinitely: bool = True
    early_preload: bool = False
    sharing_strategy: SharingStrategy = SharingStrategy.ForkServer

    def __post_init__(self) -> None:
        if not isinstance(self.buffer_size, int) or isinstance(self.buffer_size, bool) or self.buffer_size < 1:
            raise BadOption(f"buffer_size must be a whole number of batches >= 1, not {self.buffer_size!r}")
        if self.sharing_strategy not in list(SharingStrategy):
            raise BadOption(
                f"sharing_strategy must be one of {', '.join(SharingStrategy)}, not {self.sharing_strategy!r}"
            )

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> "Prefetching":
        """The options that a user gives as `async_options`; an unknown name is an error with a suggestion."""
        known = [option.name for option in fields(cls)]
        for name in options or {}:
            if name not in known:
                hint = meant(name, known, f"known: {', '.join(known)}")
                raise BadOption(f"unknown option {name!r} in async_options{hint}")
        return cls(**(options or {}))

    def policy(self, workers: int) -> dict[str, Any]:
        """Options of a policy with so many workers; `buffer_size` counts the batches of all of them."""
        return {
            "workers": workers,
            "kind": "process",
            "window": max(self.buffer_size, workers + 1),
            "prefetch": -(-self.buffer_size // workers),
            "start_method": _START_METHODS[self.sharing_strategy],
        }


@dataclass(frozen=True, slots=True, eq=False)
class LoadPlan:
    """What is loaded: a pipe of whole batches, and what is known about them."""

    pipe: Pipe[Any]
    finish: Callable[[Any], Any] | None = None
    """Applied to each batch in the user's process."""
    share: Share | None = None
    """The arithmetic of the batches, where the data set has random access."""
    inputs: int | None = None
    """How many inputs make a batch: samples, or pieces that workers loaded one by one."""
    left_out: LeftOut | None = None
    stream: bool = False
    """The data set is iterable, and read by one worker."""
    options: Mapping[str, Any] = field(default_factory=lambda: {"world": World()})
    """Options of the Loader: the world, how an epoch ends, the seed."""

    @property
    def steps(self) -> int | None:
        """Batches of an epoch, if that is known; a stream may deliver fewer than its len() says."""
        return self.pipe.length() if self.share is None else self.share.steps


class EpochLoader:
    """What the replica-aware loader and the accessor have in common.

    `ahead` is None where loading waits for the training loop.
    """

    def __init__(
        self, plan: LoadPlan, policy: Policy, ahead: Prefetching | None = None, autosave: Given | None = None
    ) -> None:
        self.loader = Loader.of(plan.pipe, policy, **plan.options, autosave=autosave)
        """The loader that runs: for `headrace.observe.profile` and whatever else takes a Loader."""
        self._plan = plan
        self._steps = plan.steps
        self._finish = plan.finish or (lambda batch: batch)
        self._onwards = ahead is not None and ahead.load_indefinitely
        """The next epoch begins as soon as the last batch of this one is handed out."""
        self._taken = 0
        """Batches of the present epoch that were handed out."""
        self._begun: tuple[Epoch[Any], list[Any]] | None = None
        """An epoch that runs and that nobody iterates yet, with the batches that were taken from it."""
        self._before_first: dict[str, Any] | None = None
        """The state before the batch that the constructor has loaded, until that batch is handed out."""
        self._closed = False
        # (A snapshot that is written by itself must not count a batch that nobody has been given.)
        if ahead is not None and autosave is None:
            self._load_first()

    def __iter__(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        if begun is not None:
            return self._batches(*begun, done=0)
        resumed, self._before_first = self.loader.resumed or 0, None
        # (Rounded up: where processes share an uneven end, the step before the last may be a short one.)
        return self._batches(self._open(), [], -(-resumed // self._plan.inputs) if self._plan.inputs else 0)

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch stands, as plain data, the same on every process; loads with any mode and `num_workers`."""
        return self.loader.state_dict() if self._before_first is None else self._before_first

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where the snapshot was taken."""
        self._begun = self._before_first = None
        self.loader.load_state_dict(state)

    def stats(self) -> Stats:
        """What has happened so far."""
        return self.loader.stats()

    def explain(self) -> str:
        """The plan: what runs where, and what has shown since about the use of workers."""
        return self.loader.explain()

    def terminate(self) -> None:
        """Stop the workers; iterating again is an error. Calling it twice is not."""
        self._closed = True
        self._begun = self._before_first = None
        self.loader.close()

    def _batches(self, epoch: Epoch[Any], first: list[Any], done: int) -> Iterator[Any]:
        self._taken, share = done, self._plan.share
        steps = None if share is None else share.steps
        onwards = self._onwards
        try:
            with WORDS:
                for batch in chain(first, epoch):
                    self._taken += 1
                    self._before_first = None
                    if onwards and self._taken == steps:
                        # This was the last one: end the epoch now, so that its workers are free for the next.
                        surplus = list(epoch)
                        assert not surplus, "an epoch delivers exactly its steps"
                        self._begin()
                        onwards = False
                    yield self._finish(batch)
        except BaseException as error:
            shorten(error)
            raise
        if onwards:
            self._begin()

    def _load_first(self) -> None:
        """Load the first batch now, so that a broken data set is reported when the loader is made."""
        self._before_first = self.loader.state_dict()
        self._begin()
        assert self._begun is not None
        epoch, taken = self._begun
        try:
            with WORDS:
                taken.append(next(epoch))
        except StopIteration:
            self.terminate()
            raise BadOption("the data set is empty: an asynchronous loader needs at least one batch") from None
        except BaseException as error:
            self.terminate()
            error.add_note("headrace: while the first batch was loaded, so the asynchronous loader could not start")
            raise

    def _begin(self) -> None:
        """Begin the next epoch now: the first tickets go to the workers, and nothing is waited for."""
        if self._begun is None and not self._closed:
            epoch = self._open()
            self._begun = epoch, []
            epoch.start()

    def _open(self) -> Epoch[Any]:
        with WORDS:
            return iter(self.loader)


def one_by_one(pipe: Pipe[Any]) -> Pipe[Any]:
    """The same items, each loaded and sent on its own: they may be whole batches already."""
    return pipe.batch(1).map(_first)


def _first(group: list[Any]) -> Any:
    return group[0]
