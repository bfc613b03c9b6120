"""Epoch: the iterator that a user holds. It borrows workers from the pool and gives them back at the end.

What counts is what the caller has *received*. An exception can come out of `next()` at any moment: an error of the
pipe's, a worker that died, Ctrl-C, a signal handler that raises. Whatever it is, the epoch then stands after the batch
that was received last. So a batch is taken first, with the place behind it, and the very last thing before it is handed
over is to say that it is received:

    take()                    the next batch; the epoch stands where it stood
    received = handed         now it stands behind that batch; nothing that could fail comes after this

Behind an error about one batch the iterator goes on. Anything else ends it: who goes on asks the loader for a snapshot.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from headrace.engine.feeds.place import Feed
from headrace.engine.places import EpochPlace, HandedOn, RunningEpoch, RunPlace, plain_epoch_place
from headrace.engine.policy import Policy
from headrace.engine.pool import Pool
from headrace.engine.run import Run
from headrace.engine.wire.messages import Ticket
from headrace.engine.workers.protocol import Workers
from headrace.errors import Closed, HeadraceError, warn_once
from headrace.observe.meter import Meter
from headrace.op import place as here
from headrace.plan.world import World
from headrace.tracebacks import shorten

T = TypeVar("T", covariant=True)


class Watched(Protocol):
    """The samples of an epoch, seen by whoever settles with other ranks how far it goes."""

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def leave(self) -> None:
        """Nobody will ask for more."""


StartWatch = Callable[[RunningEpoch], Watched]
"""A run -> its samples, as far as they are wanted."""


class Start(NamedTuple):
    """Where an epoch begins, what feeds its first stage if ranks settle that, and who looks on.

    `stands` says where the whole job stands after so many batches of this rank, if that is more than where it does.
    """

    at: RunPlace | None = None
    first: Callable[[RunPlace | None], Feed] | None = None
    watch: StartWatch | None = None
    stands: Callable[[int], EpochPlace | None] | None = None


CAPTURE = 64
"""Where ops in the consumer stand is noted once in so many batches: in between, the batches since are counted."""
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
        start: "Start | None" = None,
    ) -> None:
        at, first, watch, stands = start or Start()
        self.epoch = epoch
        self._pool = pool
        self._meter = meter
        self._world = world
        self._ends = ends
        self._first = first
        self._tailed = bool(pool.program.tail)
        """Some ops run in the consumer, on top of the run."""
        self._closed = False
        self._workers: Workers | None = None
        self.after_each: Callable[[bool], None] | None = None
        """Called after each batch, before the caller gets it, and with True at the end of the epoch."""
        self.trial: Callable[[Epoch[T]], None] | None = None
        """Called after each batch too, by the tuner: it may move the epoch to other workers."""
        self.on_break: Callable[[int, EpochPlace | None], None] | None = None
        """Called with the place of the epoch when it is closed before its end."""
        self.handed_over: HandedOn | None = None
        """Set where batches are taken ahead (copies to a device): which batch the caller has."""
        self._watch = watch
        self._watched: Watched | None = None
        self._job = stands
        self._reading = threading.RLock()
        """Held by the thread that is inside `take()`."""
        self.handed = 0
        """How many batches `take()` has returned."""
        self.received = 0
        """How many batches have reached the caller: as many as `handed`, or one fewer."""
        self._whole = at is None and first is None
        """It begins at the start."""
        self._closed_because = ""
        """Why this iterator was closed before its end."""
        self._open(at)
        self._previous = self._last
        """`_last` of the batch before."""
        self._captured = (0, self.now())
        """With ops in the consumer: a number of batches, and the place of these ops after that many."""
        self._behind: tuple[int, RunPlace] | None = None
        """The same after a batch that failed, where the ops were opened again behind it."""
        self._clean = True
        """With ops in the consumer: `now()` is the place after the batch that the caller has."""

    def _open(self, at: RunPlace | None) -> None:
        self._workers = self._pool.take()
        listed = self._pool.program.stages[0].feed == "listed"
        self._runs_user_code_here = listed or self._tailed or not self._workers.concurrent
        """Code of the pipe runs in the thread of the caller, who may be inside an op of another pipe."""
        try:
            self._build(at)
        except BaseException:
            self._pool.discard(self._workers)
            self._workers = None
            raise

    def _build(self, at: RunPlace | None, run: Run | None = None) -> None:
        """A run at this place (the one that stands there, if given), with the ops of the consumer on top of it."""
        self._source: RunningEpoch
        if self._tailed:
            from headrace.engine.tail import Tail

            self._source = Tail(self, at, run)
        else:
            self._run = self._source = self._begin(at)
        self._samples: Iterator[Any] = self._source
        self._last: tuple[Run, Ticket | None, int] = (self._run, self._run.ticket, 0)
        """Of the batch handed out last: its ticket, and how many outputs of that are gone with it."""
        if self._watch is not None:
            # (Weak: without a tail, which makes a circle anyway, this object ends when nobody holds it any more.)
            self._samples = self._watched = self._watch(self._source)

    def _begin(self, at: RunPlace | None, turn: int = 0) -> Run:
        assert self._workers is not None
        return Run(
            self._pool.program, self._pool.policy, self._workers, self.epoch + turn * TURN, self._world, self._meter,
            ends=self._ends, at=at, first=None if self._first is None else self._first(at),
        )  # fmt: skip

    def __next__(self) -> T:
        try:
            sample = self.take()
        except StopIteration:
            raise
        except BaseException as error:
            shorten(error)
            raise
        self.received = self.handed  # (An interrupt is heard at calls only, so none can come after this.)
        return sample

    def take(self) -> T:
        """The next batch. It counts as delivered when whoever calls this says so: `epoch.received = epoch.handed`."""
        if not self._reading.acquire(False):
            raise RuntimeError(
                "this iterator is being read by another thread; give each thread an iterator of its own, iter(loader), "
                "or let one thread read and hand on"
            )
        try:
            if self._closed:
                raise Closed(self._closed_because or "this iterator is closed; iter(loader) starts the next epoch")
            # (Whoever watches may hold an error of the run's back, and batches that were made before it.)
            if self.received != self.handed or (self._watch is None and not self._run.consistent):
                self._closed_because = _broken_off("an exception came while a batch was on its way")
                self.close(discard=True)
                raise Closed(self._closed_because)
            return here.apart(self._next) if self._runs_user_code_here else self._next()
        finally:
            self._reading.release()

    def _next(self) -> T:
        try:
            if self._tailed:
                if self._clean and self.received - self._captured[0] >= CAPTURE:
                    self._captured, self._behind = (self.received, self.now()), None
                self._clean = False
            sample = next(self._samples)
            run = self._run
            # (No call between these: they happen together or not at all.)
            self._previous = self._last
            self._last = (run, run.ticket, run.taken)
            self.handed += 1
            self._clean = True
            self._meter.batches += 1
            if self.trial is not None:
                self.trial(self)
            if self.after_each is not None:
                self.after_each(False)
            return sample  # type: ignore[no-any-return]
        except StopIteration:
            if self._watch is not None and self._workers is not None and not self._run.ended:
                self._run.abandon()  # ranks have agreed to stop here
            self._give_back()
            if self.after_each is not None:
                self.after_each(True)
            if self._whole and not self.handed:
                # A wrong folder must not look like a short epoch.
                pipe = self._pool.program.pipe
                warn_once(f"this epoch had no samples; are the paths, or the data, of this pipe right?\n{pipe}")
            raise
        except BaseException as error:
            self._after(error)
            raise

    def _after(self, error: BaseException) -> None:
        """An exception is on its way to the caller: go on behind the batch that failed, or end here."""
        run, failed = self._run, self._run.failed
        run.failed = False
        ours = isinstance(error, HeadraceError)
        alive = failed and run.consistent and self._watch is None and not ours
        if alive and (not self._tailed or self._go_on_behind()):
            return
        self._closed_because = _broken_off(f"it was ended by {type(error).__name__}")
        self.close(discard=not ours)

    def _go_on_behind(self) -> bool:
        """An error has ended the ops in the consumer: open them again behind it, unless they held samples."""
        if not all(node.op.quiet for node in self._pool.program.tail):
            return False
        at = self.now()
        self._build(at, self._run)
        self._behind = (self.handed, at)
        return True

    def open(self) -> None:
        """Open the streams now; an error of that is raised."""
        self._run.start()
        if self._run._ready:
            self.take()  # (nothing else can have come before they were open)

    def streams(self) -> RunPlace | None:
        """Where the streams stand now, whatever of them was handed out; None: there are none."""
        return self._run.streams()

    @property
    def noted(self) -> Any:
        """Of the batch that was handed out last, the number of its worker and what an op has noted; None: nothing."""
        ticket = self._last[1]
        return None if ticket is None else ticket.noted

    @property
    def workers(self) -> Workers | None:
        """Who runs it; None at its end."""
        return self._workers

    def now(self) -> RunPlace:
        """Where the run is, and the ops on top of it: behind the batch that was handed out last, or that failed."""
        return self._source.place()

    @property
    def idle(self) -> bool:
        """No work of it is out, though some is left."""
        return self._run.outstanding == 0 and not self._run.exhausted

    def start(self, alone: bool = False) -> None:
        """Send the first work out now. Whether a worker fails at its start is heard with the first batch.

        `alone`: when nothing of the epochs before is with the workers any more.
        """
        if alone:
            self._run.wait_for_earlier()
        self._run.keep_busy(take=False)

    def wait(self) -> None:
        """Until the next batch is there, without taking it; what is wrong with the workers is raised."""
        try:
            while not self._run._ready and not self._run.ended:
                self._run._pump()
        except BaseException as error:
            self._after(error)
            raise

    def move(self, policy: Policy) -> None:
        """Go on with other workers, behind the batch that was handed out last."""
        pool = self._pool

        def change() -> Pool:
            pool.change(policy)
            return pool

        self.move_to(change)

    def move_to(self, change: Callable[[], Pool]) -> None:
        """The same with the workers of a pool that `change` makes; up to here its program is the same."""
        # (By way of plain data: an op that cannot say where it stands is refused here, before anything is left.)
        at = RunPlace.read(plain_epoch_place(self.now())).fit(self._pool.program)
        self._run.abandon()
        self._give_back()
        self._pool = change()
        self._open(at)

    def state(self, ahead: bool = False) -> RunPlace:
        """Where this process stands: after the batch that was received last, or `ahead`, after the one handed out."""
        count = self.handed if ahead else self.received
        if not self._tailed:
            run, ticket, taken = self._last if count == self.handed else self._previous
            return run.start() if ticket is None else run.place_at(ticket, taken)
        if self._clean and count == self.handed and not self._closed:
            return self.now()
        before, place = self._captured
        if self._behind is not None and count > self._behind[0]:
            before, place = self._behind
        return replace(place, ops=(replace(place.ops[0], skip=place.ops[0].skip + count - before), *place.ops[1:]))

    def stands(self, ahead: bool = False) -> EpochPlace | None:
        """Where the whole job stands, as far as this rank knows."""
        if self._job is None:
            return self.state(ahead)
        return self._job(self.handed if ahead else self.received)

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

    def close(self, discard: bool = False) -> None:
        """End before the end: the workers go back to the pool, or end too if they may be in no fit state."""
        if self._workers is None:
            return
        try:
            if self.on_break is not None:
                self.on_break(self.epoch, self.stands())
        finally:
            self._closed = True
            if self._run.consistent and not discard:
                self._run.abandon()
                self._give_back()
            else:
                # An exception came out of the middle of the loop: a reply may be lost, a worker may be missing.
                workers, self._workers = self._workers, None
                self._pool.discard(workers)
            if self._watched is not None:
                self._watched.leave()
            self._samples = iter(())

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # (At the end of the interpreter the loader has closed its pool, and what `close` calls may be gone.)
        if self._workers is not None and not finalizing():
            self.close()


def _broken_off(why: str) -> str:
    return (
        f"this iterator is closed: {why}. To go on after the batch that was received last, "
        "loader.load_state_dict(loader.state_dict()) and iter(loader); iter(loader) alone starts the next epoch"
    )
