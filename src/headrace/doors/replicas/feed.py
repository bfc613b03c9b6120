"""EpochLoader: a headrace Loader as the replica-aware loader and the accessor run it, epoch by epoch.

    Sync    an epoch begins with its first batch
    Async   the next epoch begins when the last batch of this one is handed out (`load_indefinitely`), and the first
            one when the loader is made, whatever `early_preload` says, so that workers never stand still

What the options of the asynchronous modes mean is all here; the loading itself is the Loader's.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

from headrace.doors.replicas.partition import LeftOut
from headrace.engine.epoch import Epoch
from headrace.engine.wire.words import DATASET_CURE, Words
from headrace.errors import BadOption, meant
from headrace.loader import Loader, Stats
from headrace.pipe.graph import Pipe
from headrace.plan.share import Share
from headrace.plan.world import World

WORDS = Words(
    there=DATASET_CURE,
    others=(
        (", or leave such samples out with on_poison='skip'", ""),
        (", or leave such batches out with on_poison='skip'", ""),
        (", or let stuck workers be replaced with on_stuck='replace'", ""),
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
    """Accepted from programs that set it. Nobody polls here, so nobody sleeps."""
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
    def of(cls, given: Mapping[str, Any] | None) -> "Prefetching":
        """From `async_options`; an unknown one is refused with a suggestion."""
        known = [option.name for option in fields(cls)]
        for name in given or {}:
            if name not in known:
                hint = meant(name, known, f"known: {', '.join(known)}")
                raise BadOption(f"unknown option {name!r} in async_options{hint}")
        return cls(**(given or {}))

    def policy(self, workers: int) -> dict[str, Any]:
        """The buffer counts batches over all workers."""
        return {
            "workers": workers,
            "kind": "process",
            "window": max(self.buffer_size, workers + 1),
            "prefetch": -(-self.buffer_size // workers),
            "start_method": _START_METHODS[self.sharing_strategy],
        }


@dataclass(frozen=True, slots=True, eq=False)
class LoadingJob:
    """What is loaded, whoever loads it."""

    pipe: Pipe[Any]
    finish: Callable[[Any], Any] | None = None
    """The last touch on a batch, in the user's process."""
    steps: int | None = None
    """Batches of an epoch, if that can be known."""
    certain: bool = False
    """Whether it is exactly so many: a stream may not deliver what its len() says."""
    inputs: int | None = None
    """What one of these batches is made of: samples, or pieces that were loaded by themselves."""
    share: Share | None = None
    """Of a data set with random access: the arithmetic of its batches."""
    left_out: LeftOut | None = None
    stream: bool = False
    """The data set is iterable, and read in one place."""
    options: Mapping[str, Any] = field(default_factory=lambda: {"world": World()})
    """Of the Loader: the world, how an epoch ends, the seed."""
    synthetic: bool = False


class EpochLoader:
    """What the replica-aware loader and the accessor have in common; `loader` is the Loader that runs inside.

    `ahead` is None where loading waits for the training loop.
    """

    def __init__(self, job: LoadingJob, policy: dict[str, Any], ahead: Prefetching | None = None) -> None:
        self.loader = Loader(job.pipe, **job.options, **policy)
        """The loader that runs: for `headrace.observe.profile` and whatever else takes a Loader."""
        self._taken = 0
        """Batches handed out in the epoch at hand."""
        self._job = job
        self._steps = job.steps if job.certain else None
        self._finish = job.finish or (lambda batch: batch)
        self._ahead = ahead
        self._begun: Epoch[Any] | None = None
        self._closed = False
        self._first: list[Any] = []
        """The batch that the constructor loaded, until an iterator takes it."""
        self._before: dict[str, Any] | None = None
        """The place before that batch, until it is handed out."""
        # (A snapshot that is written by itself must not count a batch that nobody has been given.)
        if ahead is not None and policy.get("autosave") is None:
            self._load_first()

    def __iter__(self) -> Iterator[Any]:
        epoch, self._begun = self._begun, None
        first, self._first = self._first, []
        done = 0
        if epoch is None:
            done = (self.loader.resumed or 0) // self._job.inputs if self._job.inputs else 0
            epoch, self._before = self._open(), None
        return self._batches(epoch, first, done)

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch stands, as plain data, the same on every process; loads with any mode and `num_workers`."""
        return self.loader.state_dict() if self._before is None else self._before

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where the snapshot was taken."""
        self._forget()
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
        self._forget()
        self.loader.close()

    def _forget(self) -> None:
        """Leave what was begun and not handed out."""
        self._begun = self._before = None
        self._first = []

    def _batches(self, epoch: Epoch[Any], first: list[Any], done: int) -> Iterator[Any]:
        self._taken, steps = done, self._steps
        if self._job.synthetic and steps:
            batch = self._finish(first[0] if first else next(epoch))
            epoch.close()
            for self._taken in range(done + 1, steps + 1):
                yield batch
            return
        onwards = self._ahead is not None and self._ahead.load_indefinitely
        with WORDS:
            for batch in chain(first, epoch):
                self._taken += 1
                self._before = None
                if onwards and self._taken == steps:
                    # This was the last one: end the epoch now, so that its workers are free for the next.
                    surplus = list(epoch)
                    assert not surplus, "an epoch delivers exactly its steps"
                    self._begin()
                    onwards = False
                yield self._finish(batch)
        if onwards:
            self._begin()

    def _load_first(self) -> None:
        """An asynchronous loader loads its first batch when it is made: a data set that is broken is told there."""
        self._before = self.loader.state_dict()
        self._begin()
        assert self._begun is not None
        try:
            with WORDS:
                self._first = [next(self._begun)]
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
            self._begun = self._open()
            self._begun.start()

    def _open(self) -> Epoch[Any]:
        with WORDS:
            return iter(self.loader)


def one_by_one(pipe: Pipe[Any]) -> Pipe[Any]:
    """The same items, each loaded and sent on its own: they may be whole batches already."""
    return pipe.batch(1).map(_first)


def _first(group: list[Any]) -> Any:
    return group[0]
