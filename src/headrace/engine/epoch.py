"""Epoch: the iterator that a user holds. It borrows workers from the pool and gives them back at the end."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

from headrace.engine.feeds.place import Feed
from headrace.engine.places import RunPlace, plain_epoch_place
from headrace.engine.policy import Policy
from headrace.engine.pool import Pool
from headrace.engine.run import Run
from headrace.engine.workers.protocol import Workers
from headrace.errors import HeadraceError
from headrace.observe.meter import RUN, Meter
from headrace.pipe.cursor import Cursor, Opening
from headrace.pipe.graph import Pipe
from headrace.plan.seed import BorrowedGlobals, seed_globals
from headrace.plan.world import World

T = TypeVar("T", covariant=True)
Watch = Callable[[Iterator[Any], Callable[[], RunPlace], Callable[[], list[bool] | None]], Iterator[Any]]
"""Samples, where they stand, the mask of the last one -> the same samples. May have leave(): nobody wants more."""
TURN = 2**32
"""What a further turn of a cycle in the tail adds to the epoch's number, so that its random choices are its own."""


class Epoch(Iterator[T], Generic[T]):
    """One epoch of a program."""

    def __init__(
        self,
        pool: Pool,
        meter: Meter,
        epoch: int,
        world: World,
        *,
        ends: str = "short",
        at: RunPlace | None = None,
        first: Feed | None = None,
        keep: object = None,
        watch: Watch | None = None,
    ) -> None:
        self.epoch = epoch
        self._keep = keep
        """Whoever owns the pool: it must not end while somebody iterates (`for x in Loader(...)`)."""
        self._pool = pool
        self._meter = meter
        self._world = world
        self._ends = ends
        self._first = first
        self._tail: Cursor | None = None
        self._closed = False
        self._workers: Workers | None = None
        self.after_each: Callable[[], None] | None = None
        """Called after each batch was taken and before it is handed over."""
        self.trial: Callable[[Epoch[T]], None] | None = None
        """Called after each batch too; may move the epoch to other workers."""
        self.on_break: Callable[[int, RunPlace], None] | None = None
        """Told where the epoch stands when it is left before its end."""
        self._watch = watch
        self._open(at)

    def _open(self, at: RunPlace | None) -> None:
        pool = self._pool
        self._workers = pool.take()
        try:
            if pool.program.tail:
                self._tail = _TailOpening(self).open(pool.program.pipe, None if at is None else at.cursors())
            else:
                self._run = self._begin(at)
        except BaseException:
            pool.discard(self._workers)
            self._workers = None
            raise
        self._samples: Iterator[Any] = self._tail if self._tail is not None else self._run
        if self._tail is not None and _draws(pool):
            self._samples = _Lent(self._tail)
        if self._watch is not None:
            # (With a tail this object is part of a circle anyway; without, it ends when nobody holds it any more.)
            mask = self._run.mask if self._tail is None else self.mask
            place = self._run.place if self._tail is None else self.state
            self._samples = self._watch(self._samples, place, mask)

    def _begin(self, at: RunPlace | None, turn: int = 0) -> Run:
        assert self._workers is not None
        return Run(
            self._pool.program, self._pool.policy, self._workers, self.epoch + turn * TURN, self._world, self._meter,
            ends=self._ends, at=at, first=self._first,
        )  # fmt: skip

    def __next__(self) -> T:
        try:
            sample = next(self._samples)
        except StopIteration:
            if self._watch is not None and self._workers is not None and not self._run.ended:
                self._run.abandon()  # ranks have agreed to stop here
            self._give_back()
            raise
        except BaseException as error:
            if isinstance(error, HeadraceError) or not self._run.sound:
                self.close()
            raise
        self._meter.batches += 1
        if self.trial is not None:
            self.trial(self)
        if self.after_each is not None:
            self.after_each()
        return sample  # type: ignore[no-any-return]

    def start(self) -> None:
        """Send the first work out now, without waiting for the first batch to be asked for."""
        self._run.start()

    def move(self, policy: Policy) -> None:
        """Go on from here with other workers."""
        # (By way of plain data: an op that cannot say where it stands is refused here, before anything is left.)
        at = RunPlace.read(plain_epoch_place(self.state())).fit(self._pool.program)
        self._run.abandon()
        self._give_back()
        self._pool.change(policy)
        self._open(at)

    def state(self) -> RunPlace:
        """Where this epoch stands."""
        if self._tail is None:
            return self._run.place()
        return RunPlace.under(self._tail.state(), len(self._pool.program.tail))

    def mask(self) -> list[bool] | None:
        """Which samples of the batch delivered last are real, where some only fill it."""
        return self._run.mask()

    @property
    def closed(self) -> bool:
        """Broken off before the end."""
        return self._closed

    @property
    def ended(self) -> bool:
        """Everything was delivered."""
        return self._workers is None and not self._closed

    def _give_back(self) -> None:
        if self._workers is not None:
            workers, self._workers = self._workers, None
            self._pool.give_back(workers)

    def close(self) -> None:
        """Give the workers back before the end."""
        if self._workers is not None:
            self._closed = True
            if self._run.sound:
                if self.on_break is not None:
                    self.on_break(self.epoch, self.state())
                self._run.abandon()
                self._give_back()
            else:
                # An error came out of the middle of the loop: a reply may be lost, a worker may be missing.
                workers, self._workers = self._workers, None
                self._pool.discard(workers)
        if hasattr(self._samples, "leave"):
            self._samples.leave()
        self._samples = iter(())

    def __del__(self) -> None:
        if self._workers is not None:
            self.close()


def _draws(pool: Pool) -> bool:
    """Whether user code runs in the tail, and may draw from the global generators. (Threads never touch them.)"""
    return pool.program.keyed and pool.policy.kind != "thread" and any(node.op.user for node in pool.program.tail)


class _Lent(Iterator[Any]):
    """The tail, with the user's generators put aside while it runs."""

    def __init__(self, tail: Iterator[Any]) -> None:
        self._tail = tail
        self._borrowed = BorrowedGlobals()

    def __next__(self) -> Any:
        with self._borrowed:
            return next(self._tail)


class _TailOpening(Opening):
    """Opens the ops that run in the consumer on top of a run."""

    def __init__(self, epoch: Epoch[Any]) -> None:
        program = epoch._pool.program
        seeding = seed_globals if _draws(epoch._pool) else None
        super().__init__(
            program.pipe.ordinals(), program.seed, epoch.epoch, seed_globals=seeding, clock=epoch._meter.tail
        )
        self._iterator = epoch
        self._bottom = program.tail[0].inputs[0]

    def open(self, node: Pipe[Any], state: Any = None, turn: int = 0) -> Any:
        if node is not self._bottom:
            return super().open(node, state, turn)
        return _Bottom(self._iterator, state, turn if state is None else state.turn)


class _Bottom(Iterator[Any]):
    """A run, as the input of the first op of the tail."""

    def __init__(self, epoch: Epoch[Any], at: RunPlace | None, turn: int) -> None:
        self._epoch = epoch
        self._turn = turn
        epoch._run = epoch._begin(at, turn)

    def __next__(self) -> Any:
        clock = self._epoch._meter.tail
        return next(self._epoch._run) if clock is None else clock.note(RUN, self._epoch._run.__next__)

    def state(self) -> RunPlace:
        return replace(self._epoch._run.place(), turn=self._turn)

    def again(self, turn: int) -> None:
        """The whole run again, with other random choices."""
        self._epoch._run.abandon()
        self._turn = turn
        self._epoch._run = self._epoch._begin(None, turn)
