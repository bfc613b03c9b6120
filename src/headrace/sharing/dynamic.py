"""Ranks take blocks from a counter that they share (sharding="dynamic"): a fast rank takes more than a slow one.

A rank reports its finished blocks to the others just before it hands a batch over. If an exception then keeps the batch
from the caller, the report is corrected at the next snapshot of this rank, or when it leaves the epoch. What a block
is: see `feeds.counter`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from headrace.engine.epoch import Start
from headrace.engine.feeds.counter import BlocksLeft, Finished, Taken, merged
from headrace.engine.feeds.dealt import Deal, Dealt
from headrace.engine.feeds.place import Feed
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunningEpoch, RunPlace
from headrace.engine.program import Program
from headrace.errors import BadOption, BadPipe, NoLength, SnapshotRefused
from headrace.op import Each
from headrace.pipe.graph import Pipe
from headrace.plan.seed import key
from headrace.plan.world import RankStore, World
from headrace.ranks.agree import group_timeout
from headrace.ranks.counter import StoreCounter, find_store, leave
from headrace.ranks.env import job
from headrace.sharing.arithmetic import Sharing

_loaders: Counter[int] = Counter()
"""How many loaders of the same pipe and seed this process has made."""
Begun = tuple[int, int] | None
"""A block of which some outputs were delivered, and how many."""


class DynamicSharing(Sharing):
    """Ranks take blocks from a counter."""

    def __init__(self, program: Program, pipe: Pipe[Any], world: World, ends: str, timeout: float) -> None:
        super().__init__(program, pipe, world, ends, timeout)
        _check_program(program)
        self._store: RankStore | None = None
        self._hosts = False
        digest = key("dynamic", program.seed, *pipe.fingerprint())
        # Ranks that make several loaders of the same thing make them in the same order.
        self._key = f"headrace/dynamic/{job()}/{digest}/{_loaders[digest]}"
        _loaders[digest] += 1
        self._begun = 0
        self._counter: StoreCounter | None = None
        self._running: CountedEpoch | None = None

    def check(self, at: EpochPlace | None) -> EpochPlace | None:
        if at is None or (isinstance(at, RunPlace) and at.place is None):
            return None
        place = at.place if isinstance(at, RunPlace) else None
        if isinstance(at, RunPlace) and isinstance(place, Position) and not at.gone and not at.ahead:
            # Taken with static sharding, when all ranks stood at one position.
            return RunPlace(Finished(((0, place.position),) if place.position else ()), 0, at.skipped)
        if not isinstance(place, Finished):
            raise SnapshotRefused(
                "this snapshot was not taken with sharding='dynamic': make the loader with sharding='static'"
            )
        return at

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        if self._store is None:
            self._store, self._hosts = find_store(self._world, self._timeout)
            self._timeout = group_timeout(self._timeout)
        counter = StoreCounter(self._store, f"{self._key}/{self._begun}", self._world)
        self._begun += 1
        counter.meet(self._facts(epoch, at), self._timeout)
        if self._counter is not None:
            self._counter.forget()
        self._counter = counter
        done, skipped = Finished(), 0
        if isinstance(at, RunPlace):
            assert isinstance(at.place, Finished)
            done, skipped = at.place, at.skipped
        running = self._running = CountedEpoch(self.program, epoch, counter, done, skipped)
        return Start(None, running.feed, running.watch, running.place)

    exchanges = True

    def alone(self, epoch: int, at: EpochPlace | None) -> Start:
        raise BadOption("with sharding='dynamic' which rank takes which batch is left to chance, so none can be traced")

    def forget_epoch(self) -> None:
        self._running = None

    def after_end(self, epoch: int) -> tuple[int, EpochPlace | None] | None:
        if self._running is None:
            return None
        place = self._running.place()
        return (epoch + 1, None) if place is None else (epoch, place)

    def length(self, epoch: int) -> int:
        raise NoLength(
            "with sharding='dynamic' each rank takes as many batches as it can, so nobody knows how many in advance"
        )

    def close(self, wait: bool = True) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            leave(store, self._key, self._world.ranks, wait and self._hosts, self._timeout)


class _Step(NamedTuple):
    """How far this rank has come after so many batches: finished blocks, and the block that it has begun."""

    batches: int
    finished: int
    part: Begun


class CountedEpoch:
    """One epoch of one rank: the blocks that it takes, and what it reports of them."""

    def __init__(self, program: Program, epoch: int, counter: StoreCounter, done: Finished, skipped: int = 0) -> None:
        stage = program.stages[0]
        length = program.positions(epoch).length
        self._size = stage.group or program.block
        self._blocks_left = partial(BlocksLeft, length, self._size, drop_last=stage.drop_last)
        """The blocks that are left once so much is delivered."""
        self._done = done
        done.check_below(length)
        self._blocks = self._blocks_left(done)
        self._counter = counter
        self._taken: list[int] = []
        """By the number of this rank's ticket: the block that it is made of."""
        self._open: dict[int, None] = {}
        """Tickets of this rank that are not finished, in order."""
        self._finished: list[int] = []
        """Blocks, in the order in which this rank finished them."""
        self._step = self._before = _Step(0, 0, None)
        """After the batch handed out last, and after the one before it."""
        self._reported: _Step | None = self._step
        """What the other ranks know; None while the report is being sent."""
        self._skipped = skipped
        self._epoch = epoch

    def feed(self, at: RunPlace | None) -> Feed:
        """The blocks that this rank takes, as tickets."""
        return Dealt(self._deals(), self._epoch, Taken)

    def _deals(self) -> Iterator[Deal]:
        while (block := self._counter.take()) < self._blocks.count:
            ticket = len(self._taken)
            self._taken.append(block)
            self._open[ticket] = None
            (first, stop), *others = self._blocks.ranges(block)
            payload = (first, stop, tuple(p for start, end in others for p in range(start, end)))
            # Random values depend on this number, so it is the one that a batch of these samples has in any run.
            yield Deal(first // self._size, payload, ticket, ticket + 1, self._blocks.skip(block))

    def watch(self, run: RunningEpoch) -> "ReportingRun":
        """The samples of the run; the other ranks are told of each block that is finished."""
        return ReportingRun(self, run)

    def note_end(self) -> None:
        """Report that this rank has finished all its blocks."""
        self._finish(self._step.batches, list(self._open), None)

    def note(self, at: RunPlace) -> None:
        """Report how far this rank is with the batch that is about to be handed over."""
        self._skipped = at.skipped
        batches = self._step.batches + 1
        if isinstance(at.place, Taken):  # a block is a batch, and it need not be the oldest one
            self._finish(batches, [at.place.ticket - 1], None)
            return
        assert isinstance(at.place, Regrouped)
        assert isinstance(at.place.source, Taken)
        ticket, gone = at.place.source.ticket, at.place.source.part + at.place.offset + at.gone
        self._finish(batches, [t for t in self._open if t < ticket], (self._taken[ticket], gone) if gone else None)

    def _finish(self, batches: int, tickets: list[int], part: Begun) -> None:
        self._finished += [self._taken[ticket] for ticket in tickets]
        for ticket in tickets:
            del self._open[ticket]
        self._before, self._step = self._step, _Step(batches, len(self._finished), part)
        self._report(self._step)

    def _report(self, step: _Step) -> None:
        if self._reported is None or step[1:] != self._reported[1:]:
            self._reported = None
            surely = min(step.finished, self._before.finished)
            self._counter.finish(self._finished, step.finished, step.part, surely)
        self._reported = step

    def leave(self) -> None:
        """This rank makes no more steps: what it has reported last counts."""
        self._step = self._reported or self._step

    def place(self, received: int | None = None) -> RunPlace | None:
        """Where the whole job stands; None when everything is delivered.

        `received`: batches of this rank that have reached the caller, which may be one fewer than were handed out.
        """
        self._report(self._before if received is not None and received < self._step.batches else self._step)
        finished = list(self._done.finished)
        begun = dict.fromkeys(range(len(self._done.parts)), 0)
        for blocks, part in self._counter.everyone():
            for block in blocks:
                finished += self._blocks.ranges(block)
                begun.pop(block, None)
            if part is not None:
                begun[part[0]] = part[1]
        parts = tuple((self._blocks.ranges(b), self._blocks.skip(b) + gone) for b, gone in sorted(begun.items()))
        done = Finished(merged(finished), parts)
        return RunPlace(done, 0, self._skipped) if self._blocks_left(done).count else None


@dataclass(eq=False)
class ReportingRun(Iterator[Any]):
    """The samples of a run; the other ranks are told of each block that is finished."""

    _epoch: CountedEpoch
    _run: RunningEpoch

    def __next__(self) -> Any:
        try:
            sample = next(self._run)
        except StopIteration:
            self._epoch.note_end()
            raise
        self._epoch.note(self._run.place())
        return sample

    def leave(self) -> None:
        self._epoch.leave()


def _check_program(program: Program) -> None:
    """Raise unless blocks of this program can be dealt out one by one, and told apart when they are finished."""
    if not program.indexed:
        raise BadPipe(
            "sharding='dynamic' deals out positions, and this pipe is a stream, which every rank reads from its start; "
            "give it a source with random access, or leave sharding at 'static'"
        )
    if len(program.stages) > 2 or not all(isinstance(node.op, Each) for node in (*program.last.nodes, *program.tail)):
        raise BadPipe(
            "sharding='dynamic' has to know which blocks a batch was made of, and this pipe regroups samples more than "
            "once; batch once, and after all ops that change the number of samples"
        )
