"""Dynamic sharding: one epoch of one rank that takes blocks from a counter (see `feeds.counter`).

The other ranks are told which blocks are finished when a batch is about to be handed over. If an exception keeps it
from its caller, that is taken back as soon as anybody asks this rank where the job stands, or it leaves the epoch.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from headrace.engine.feeds.counter import BlocksLeft, Finished, Taken, merged
from headrace.engine.feeds.dealt import Deal, Dealt
from headrace.engine.feeds.place import Feed
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import RunningEpoch, RunPlace
from headrace.engine.program import Program
from headrace.errors import BadPipe
from headrace.op import Each

Begun = tuple[int, int] | None
"""A block of which some outputs are gone, and how many."""


class SharedCounter(Protocol):
    """What ranks share; see `headrace.ranks.counter`."""

    def take(self) -> int: ...
    def finish(self, blocks: list[int], count: int, part: Begun, surely: int) -> None:
        """This rank has finished the first `count` of these, `surely` so many of them; and what is gone of one more."""

    def everyone(self) -> list[tuple[list[int], Begun]]: ...


class _Step(NamedTuple):
    """How far this rank has come after so many batches."""

    batches: int
    finished: int
    """Blocks."""
    part: Begun


class Dynamic:
    """One epoch of one rank."""

    def __init__(self, program: Program, epoch: int, counter: SharedCounter, done: Finished, skipped: int = 0) -> None:
        stage = program.stages[0]
        indexed = program.head.indexed(program.seed, epoch)
        assert indexed is not None
        self._size = stage.group or program.block
        self._single = stage.group is None
        self._whole = (indexed.length, self._size, stage.drop_last)
        self._done = done
        done.check_below(indexed.length)
        self._blocks = BlocksLeft(indexed.length, self._size, done, stage.drop_last)
        self._counter = counter
        self._taken: list[int] = []
        self._open: dict[int, None] = {}
        """Tickets of this rank that are not finished, in order."""
        self._finished: list[int] = []
        """Blocks, in the order in which this rank finished them."""
        self._step = self._before = _Step(0, 0, None)
        """After the batch handed out last, and after the one before it."""
        self._told: _Step | None = self._step
        """What the other ranks know; None while they are being told."""
        self._skipped = skipped
        self._epoch = epoch

    def feed(self) -> Feed:
        """The blocks that this rank takes, as tickets."""
        return Dealt(self._deals(), self._epoch, Taken, single=self._single)

    def _deals(self) -> Iterator[Deal]:
        while (block := self._counter.take()) < self._blocks.count:
            ticket = len(self._taken)
            self._taken.append(block)
            self._open[ticket] = None
            (first, stop), *others = self._blocks.ranges(block)
            payload = (first, stop, tuple(p for start, end in others for p in range(start, end)))
            # Random values hang on the number: it is the one that a batch of these samples has in any run.
            yield Deal(first // self._size, payload, ticket, ticket + 1, self._blocks.skip(block))

    def watch(self, run: RunningEpoch, again: object) -> "Told":
        return Told(self, run)

    def note_end(self) -> None:
        """Nothing is left for this rank."""
        self._finish(self._step.batches, list(self._open), None)

    def note(self, at: RunPlace) -> None:
        """One more batch is about to be handed over."""
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
        finished = len(self._finished)
        self._before, self._step = self._step, _Step(batches, finished, part)
        self._tell(self._step)

    def _tell(self, step: _Step) -> None:
        if self._told is None or step[1:] != self._told[1:]:
            self._told = None
            surely = min(step.finished, self._before.finished)
            self._counter.finish(self._finished, step.finished, step.part, surely)
        self._told = step

    def leave(self) -> None:
        """This rank makes no more steps: what it has said last counts."""
        self._step = self._told or self._step

    def place(self, received: int | None = None) -> RunPlace | None:
        """Where the whole job stands; None when everything is delivered.

        `received`: batches of this rank that have reached the caller, which may be one fewer than were handed out.
        """
        self._tell(self._before if received is not None and received < self._step.batches else self._step)
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
        return RunPlace(done, 0, self._skipped) if BlocksLeft(*self._whole[:2], done, self._whole[2]).count else None


class Told(Iterator[Any]):
    """The samples of a run; the other ranks are told of each block that is finished."""

    def __init__(self, dynamic: Dynamic, run: RunningEpoch) -> None:
        self._dynamic = dynamic
        self._run = run

    def __next__(self) -> Any:
        try:
            sample = next(self._run)
        except StopIteration:
            self._dynamic.note_end()
            raise
        self._dynamic.note(self._run.place())
        return sample

    def leave(self) -> None:
        self._dynamic.leave()


def check_program(program: Program) -> None:
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
