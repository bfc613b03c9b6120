"""Loader: a pipe, a policy and a world, iterated epoch by epoch.

    with Loader(pipe, workers=2, seed=7) as loader:
        for batch in loader: ...          # epoch 0
        for batch in loader: ...          # epoch 1, another order

Samples, batches and random values are the same for any number and kind of workers. Workers start at the first batch and
live until `close()`. `state_dict()` between any two batches says where the epoch stands.
"""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from headrace.cursor import Cursor, Opening
from headrace.engine.policy import Budget, Policy
from headrace.engine.pool import Pool
from headrace.engine.program import Program, cut
from headrace.engine.run import Run
from headrace.errors import BadOption, Closed, HeadraceError, NoLength
from headrace.observe.meter import Meter
from headrace.pipe import Pipe
from headrace.plan.share import Share, deal
from headrace.plan.world import World

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Stats:
    """What a loader has done so far."""

    epochs: int
    batches: int
    waited: float
    """Seconds the training loop waited for data."""
    busy: dict[str, float]
    """Seconds that workers spent, by stage of the plan."""
    bytes: int
    """Shared memory in existence."""
    slots: int
    copies: int
    """Batches that were copied out because the user holds many."""
    retries: int
    """Workers that ended and were replaced."""
    skips: int
    """Samples that failed and were left out."""


class Loader(Generic[T]):
    """Iterates a pipe."""

    def __init__(
        self,
        pipe: Pipe[T],
        *,
        workers: int = 0,
        kind: Literal["inline", "thread", "process", "ray"] | None = None,
        prefetch: int = 2,
        ordered: bool = True,
        seed: int = 0,
        epoch: int = 0,
        world: World | None = None,
        timeout: float | None = None,
        start_method: Literal["server", "fork", "forkserver", "spawn"] | None = None,
        strands: int | None = None,
        memory: int | None = None,
        worker_init: Callable[[int], None] | None = None,
        restarts: int = 100,
        on_error: Literal["raise", "skip"] | Budget = "raise",
        ends: Literal["short", "pad", "repeat", "drop"] = "short",
        **more: Any,
    ) -> None:
        if not isinstance(pipe, Pipe):
            raise BadOption(f"Loader() takes a Pipe, not {type(pipe).__name__}; write Loader(Pipe.of(...))")
        for name, value in (("seed", seed), ("epoch", epoch)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise BadOption(f"{name} must be a whole number >= 0, not {value!r}")
        self.policy = Policy.of(
            {
                "workers": workers, "kind": kind, "prefetch": prefetch, "ordered": ordered, "timeout": timeout,
                "start_method": start_method, "memory": memory, "worker_init": worker_init, "restarts": restarts,
                "on_error": on_error, **more,
            }
        )  # fmt: skip
        self.pipe = pipe
        self.seed = seed
        self.world = world or World()
        self.ends = ends
        self.program = cut(
            pipe, seed, keyed=self.policy.randomness == "keyed", skips=self.policy.skips, strands=strands
        )
        self._epoch = epoch
        self._epochs = 0
        self._meter = Meter()
        self._pool = Pool(self.program, self.policy)
        self._current: weakref.ref[Epoch[T]] | None = None
        self._resume: Any = None
        self._closing = weakref.finalize(self, self._pool.close)

    # --- iterating ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> "Epoch[T]":
        if self._pool.closed:
            raise Closed("this loader is closed; make a new one")
        state, self._resume = self._resume, None
        epoch = Epoch(self, self._epoch, state)
        self._current = weakref.ref(epoch)
        self._epoch += 1
        self._epochs += 1
        return epoch

    def __len__(self) -> int:
        """Batches (or samples, if nothing is batched) that one epoch delivers on this rank."""
        known = length(self.program, self.world, self.ends)
        if known is None:
            raise NoLength("the length of this loader is not known in advance: an op of the pipe decides it while it runs")
        return known

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `iter()` starts."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next `iter()` starts this epoch."""
        if not isinstance(epoch, int) or epoch < 0:
            raise BadOption(f"epoch must be a whole number >= 0, not {epoch!r}")
        self._epoch = epoch
        self._resume = None

    # --- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the workers. Iterating again is an error."""
        current = self._current() if self._current is not None else None
        if current is not None:
            current.close()
        self._closing()

    def __enter__(self) -> "Loader[T]":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # --- looking ------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """What has happened so far."""
        everybody = self._pool.all()
        arenas = [w.arena for w in everybody if hasattr(w, "arena")]
        names = {s.number: f"stage {s.number} ({s.feed})" for s in self.program.stages}
        return Stats(
            epochs=self._epochs,
            batches=self._meter.batches,
            waited=self._meter.waited,
            busy={names[k]: v for k, v in sorted(self._meter.busy.items())},
            bytes=sum(a.total for a in arenas),
            slots=sum(a.slots for a in arenas),
            copies=sum(a.copies for a in arenas),
            retries=sum(len(w.restarts) for w in everybody),
            skips=len(self._meter.skips),
        )

    def __repr__(self) -> str:
        return f"Loader({self.pipe!r}, workers={self.policy.workers}, kind={self.policy.kind!r}, seed={self.seed})"


class Epoch(Iterator[T]):
    """One epoch of a loader."""

    def __init__(self, loader: Loader[T], epoch: int, state: Any) -> None:
        self.epoch = epoch
        self._pool = loader._pool
        self._meter = loader._meter
        self._workers = self._pool.take()
        program = loader.program
        try:
            self._tail: Cursor | None = None
            if program.tail:
                opening = _TailOpening(self, loader, epoch)
                self._tail = opening.open(program.pipe, state)
            else:
                self._run = self._begin(loader, epoch, state)
        except BaseException:
            self._pool.discard(self._workers)
            self._workers = None
            raise
        self._samples: Iterator[Any] = self._tail if self._tail is not None else self._run

    def _begin(self, loader: Loader[T], epoch: int, state: Any) -> Run:
        mark, skip = (None, 0) if state is None else state
        return Run(
            loader.program, loader.policy, self._workers, epoch, loader.world, loader._meter,
            ends=loader.ends, mark=mark, skip=skip,
        )  # fmt: skip

    def __next__(self) -> T:
        try:
            sample = next(self._samples)
        except StopIteration:
            self._finish()
            raise
        except HeadraceError:
            self.close()
            raise
        self._meter.batches += 1
        return sample  # type: ignore[no-any-return]

    def state(self) -> Any:
        """Where this epoch stands, as plain data."""
        return self._tail.state() if self._tail is not None else list(self._run.mark())

    def _finish(self) -> None:
        if self._workers is not None:
            workers, self._workers = self._workers, None
            self._pool.give_back(workers)

    def close(self) -> None:
        """Give the workers back before the end."""
        if self._workers is not None:
            self._run.abandon()
            self._finish()
        self._samples = iter(())

    def __del__(self) -> None:
        if getattr(self, "_workers", None) is not None:
            self.close()


class _TailOpening(Opening):
    """Opens the ops that run in the consumer on top of a run."""

    def __init__(self, epoch: Epoch[Any], loader: Loader[Any], number: int) -> None:
        super().__init__(loader.pipe.ordinals(), loader.seed, number)
        self._iterator = epoch
        self._loader = loader
        self._bottom = loader.program.tail[0].inputs[0]

    def open(self, node: Pipe[Any], state: Any = None, turn: int = 0) -> Any:
        if node is not self._bottom:
            return super().open(node, state, turn)
        self._iterator._run = self._iterator._begin(self._loader, self.epoch, state)
        return _Bottom(self._iterator._run)


class _Bottom(Iterator[Any]):
    """A run, as the input of the first op of the tail."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __next__(self) -> Any:
        return next(self._run)

    def state(self) -> Any:
        return list(self._run.mark())


def length(program: Program, world: World, ends: str) -> int | None:
    """What one epoch delivers on this rank, or None when that cannot be known."""
    total = program.pipe.length()
    if total is None:
        return None
    first = program.stages[0]
    if program.indexed and len(program.stages) == 1:
        samples = program.head.length()
        if samples is None:
            return None
        if first.group is not None and not program.tail and first.single:
            policy = "drop" if first.drop_last else ends
            return Share(samples, first.group, world.share_ranks, world.share_rank, policy).steps  # type: ignore[arg-type]
        if first.group is None and not program.tail:
            return len(deal(total, world.share_ranks, world.share_rank))
    return total if world.share_ranks == 1 else None
