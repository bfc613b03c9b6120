"""Which samples a past batch was made of, and the batch again, bit by bit.

    Lineage(program, policy, epoch=3, step=1000).positions    nothing is run: arithmetic
    ....batch()                                               the batch itself
    ....origins()                                             for each sample, the sources it was read from, and where

Nothing is recorded while a loader runs. Where the plan deals out positions, batch `step` is a ticket that can be worked
out, and running that ticket again costs one batch. Elsewhere (streams, ops that change counts, samples that were left
out after errors) the epoch is read again, in this process, up to the batch. Steps count from where the epoch began or,
after a snapshot was loaded, from where it went on.
"""

from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headrace.engine.epoch import Epoch, Start
from headrace.engine.executor import Executor
from headrace.engine.feeds.place import Setting
from headrace.engine.feeds.positions import Batches, Items, Position
from headrace.engine.places import RunPlace
from headrace.engine.policy import Policy
from headrace.engine.pool import Pool
from headrace.engine.program import Program
from headrace.engine.wire.messages import Ticket
from headrace.errors import BadOption, check_whole
from headrace.observe.meter import Meter
from headrace.op import Op, Source, Spot
from headrace.plan.seed import BorrowedGlobals
from headrace.plan.world import World


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a sample was read."""

    source: str
    position: int
    """Its number in the source."""
    where: str | None = None
    """What `Source.locate(position)` says of it, such as a file and an offset."""


class Lineage:
    """Batch number `step` that a loader of this program delivered in `epoch`, which began `at` a place of a snapshot.

    `left_out` says that samples were left out after errors: steps can then not be told by arithmetic.
    """

    def __init__(
        self,
        program: Program,
        policy: Policy,
        epoch: int,
        step: int,
        *,
        world: World | None = None,
        ends: str = "short",
        start: Start | None = None,
        left_out: bool = False,
    ) -> None:
        check_whole("step", step)
        if not program.keyed:
            raise BadOption(
                "random values of this loader are carried from batch to batch, so no batch can be made again"
            )
        if not policy.ordered and policy.workers and program.last.single and program.stages[0].feed != "strand":
            raise BadOption(
                "batches of this loader come as they are made (ordered=False), so which one came at a step is not "
                "known; ask a loader with ordered=True"
            )
        self.program = program
        self.epoch = epoch
        self.step = step
        self.positions: tuple[int, ...] | None = None
        """Of its samples, in the epoch's order; None where only reading the epoch again can tell."""
        self.mask: tuple[bool, ...] = ()
        """False for samples that only fill the batch (ends="pad" or "repeat")."""
        self._policy, self._world, self._ends = policy, world or World(), ends
        self._start = start or Start()
        self._redo = None if left_out else self._work_out()
        self._done: tuple[Any, tuple[tuple[Origin, ...], ...]] | None = None

    @property
    def exact(self) -> bool:
        """Arithmetic was enough: making the batch again costs one batch."""
        return self._redo is not None

    def batch(self) -> Any:
        """The batch again."""
        return self._run()[0]

    def origins(self) -> tuple[tuple[Origin, ...], ...]:
        """For each sample, the places in sources that it was made from; empty where only the epoch tells."""
        return self._run()[1]

    # --- arithmetic ---------------------------------------------------------------------------------------------------

    def _work_out(self) -> tuple[Ticket, int] | None:
        """The ticket that made the batch, and which of its outputs the batch is; None where arithmetic cannot say."""
        program, at = self.program, self._start.at or RunPlace()
        place = at.place
        if not program.traceable or not isinstance(place, Position | None) or at.ahead is not None:
            return None
        # From the start of the block that the epoch went on inside of: random values depend on where blocks begin.
        start, gone = 0 if place is None else place.position, at.gone
        feed = feed_of(program, self._policy, self.epoch, self._world, self._ends, start)
        try:
            output = feed.seek(gone + self.step)
        except IndexError as steps:
            last = steps.args[0] - gone - 1
            raise BadOption(f"step {self.step}: epoch {self.epoch} has steps 0 to {last} on this rank") from None
        ticket = feed.next(None)
        assert ticket is not None
        first, stop, extra = ticket.payload
        positions = (*range(first, stop), *extra)
        self.positions = positions if isinstance(feed, Batches) else positions[output : output + 1]
        self.mask = tuple(feed.mask(ticket) or (True,) * len(self.positions))
        return ticket, output

    # --- running ------------------------------------------------------------------------------------------------------

    def _run(self) -> tuple[Any, tuple[tuple[Origin, ...], ...]]:
        if self._done is None:
            self._done = self._from_start() if self._redo is None else self._from_ticket(*self._redo)
        return self._done

    def _from_ticket(self, ticket: Ticket, output: int) -> tuple[Any, tuple[tuple[Origin, ...], ...]]:
        executor, outputs = rerun(self.program, self.epoch, ticket.number, ticket.payload)
        assert self.positions is not None
        assert isinstance(executor.spot, TracingSpot)
        places = {position: tuple(origins) for position, origins in executor.spot.origins(self.program)}
        return outputs[output], tuple(places.get(position, ()) for position in self.positions)

    def _from_start(self) -> tuple[Any, tuple[tuple[Origin, ...], ...]]:
        epoch = read_epoch(self.program, inline(self._policy), self.epoch, self._world, self._ends, start=self._start)
        with closing(epoch) as batches:
            for batch in islice(batches, self.step, None):
                return batch, ()
        raise BadOption(f"step {self.step}: epoch {self.epoch} ends before it on this rank")


def feed_of(program: Program, policy: Policy, epoch: int, world: World, ends: str, start: int = 0) -> Batches | Items:
    """The tickets of this rank in an epoch of one stage whose positions and steps are known by arithmetic."""
    feed = Position(start).open(Setting(program, policy, epoch, world, ends, lambda slot: None), 0, None)
    assert isinstance(feed, Batches | Items)
    return feed


def inline(policy: Policy) -> Policy:
    """The policy without workers: everything runs in this process."""
    return replace(policy, workers=0, kind="inline", start_method=None)


def read_epoch(
    program: Program,
    policy: Policy,
    epoch: int,
    world: World,
    ends: str,
    *,
    meter: Meter | None = None,
    start: Start | None = None,
) -> Generator[Any, None, None]:
    """The batches of an epoch, with workers of their own that end when the generator is closed."""
    pool = Pool(program, policy)
    try:
        yield from Epoch(pool, meter or Meter(), epoch, world, ends=ends, start=start)
    finally:
        pool.close()


# --- one ticket again, with a note of every place that is read --------------------------------------------------------


def rerun(program: Program, epoch: int, number: int, payload: object) -> tuple[Executor, list[Any]]:
    """A ticket of positions once more: its outputs, and the executor, which knows what failed (`skipped`) and, in its
    `TracingSpot`, what was read."""
    executor = Executor(program, seeds=True)
    spot = TracingSpot()
    spot.leave_out = executor.spot.leave_out  # what was left out of a row or a window is so again
    executor.spot = spot
    executor.header = PositionRecorder(spot)
    with BorrowedGlobals() if program.keyed else nullcontext():
        return executor, executor.run(0, epoch, number, payload)


class PositionRecorder(list[int]):
    """Stands in for the header of a slot, where the executor writes the position of each sample before it is made."""

    def __init__(self, spot: "TracingSpot") -> None:
        super().__init__((0, 0, 0))
        self._spot = spot

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        if index == 1:
            self._spot.visits.append((value, []))


class TracingSpot(Spot):
    """A spot that remembers which op was asked for which position."""

    def __init__(self) -> None:
        self.visits: list[tuple[int, list[tuple[int, int]]]] = []
        """For each sample, its position, and (op, position) of every call."""
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "position" and self.here is not None and self.visits:
            self.visits[-1][1].append((self.here.ordinal, value))

    def origins(self, program: Program) -> Iterator[tuple[int, list[Origin]]]:
        """For each sample, its position and the places in sources that it was read from."""
        nodes = program.pipe.nodes()
        for position, calls in self.visits:
            places = dict.fromkeys((ordinal, at) for ordinal, at in calls if not nodes[ordinal].inputs)
            yield position, [_origin(nodes[ordinal].op, at) for ordinal, at in places]


def _origin(source: Op[Any, Any], position: int) -> Origin:
    where = source.locate(position) if isinstance(source, Source) else None
    return Origin(source.describe(), position, where)
