"""The tail of a pipe: ops that must see the whole stream after work was divided, opened in the consumer."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.places import RunPlace
from headrace.engine.policy import Budget, too_many
from headrace.engine.wire.messages import failure
from headrace.observe.meter import RUN
from headrace.op import InputCursor, Spot
from headrace.pipe.cursor import Opening
from headrace.pipe.graph import Pipe
from headrace.plan.seed import BorrowedGlobals, key, seed_globals

if TYPE_CHECKING:
    from headrace.engine.epoch import Epoch
    from headrace.engine.run import Run


class Tail(Iterator[Any]):
    """The ops of the tail on top of a run; the epoch reads it as it would read the run."""

    def __init__(self, epoch: "Epoch[Any]", at: RunPlace | None, run: "Run | None" = None) -> None:
        """`run`: the one that stands at this place; None: one is begun there."""
        program, policy = epoch._pool.program, epoch._pool.policy
        # Whether user code runs here that may draw from the global generators.
        draws = program.keyed and policy.seeds_globals and any(node.op.user for node in program.tail)
        self._epoch = epoch
        self._depth = len(program.tail)
        self._spot = Spot()
        if policy.skips:
            self._spot.leave_out = self._leave_out
        self._skipped = 0
        """How many samples have been left out here, since it was opened."""
        opening = _Opening(epoch, draws, self._spot, run)
        self._cursor = opening.open(program.pipe, None if at is None else at.cursors())
        # The user's generators are put aside while it runs.
        self._next = partial(BorrowedGlobals().run, self._cursor.__next__) if draws else self._cursor.__next__

    def __next__(self) -> Any:
        return self._next()

    def place(self) -> RunPlace:
        place = RunPlace.under(self._cursor.state(), self._depth)
        return replace(place, skipped=place.skipped + self._skipped)

    def _leave_out(self, position: int, error: Exception) -> None:
        """Count a sample that an op has left out, as the run does for those of workers."""
        epoch, here = self._epoch, self._spot.here
        program, policy = epoch._pool.program, epoch._pool.policy
        assert here is not None
        skip = (position, program.pipe.nodes()[here.ordinal].op.describe(), failure(error), None, False)
        self._skipped += 1
        epoch._meter.skip(epoch.epoch, len(program.stages), (skip,))
        skipped = epoch._run.skipped + self._skipped
        if isinstance(budget := policy.on_error, Budget) and budget.spent(skipped, position + 1):
            raise too_many(budget, skipped, *skip[:3])

    def mask(self) -> list[bool] | None:
        return self._epoch._run.mask()

    @property
    def consistent(self) -> bool:
        return self._epoch._run.consistent


class _Opening(Opening):
    """Opens the ops that run in the consumer on top of a run."""

    def __init__(self, epoch: "Epoch[Any]", draws: bool, spot: Spot, run: "Run | None") -> None:
        program, world = epoch._pool.program, epoch._world
        # Each rank counts here what it gets itself: with one seed for all, sample k of every rank would draw the same.
        seed = program.seed if world.share_ranks == 1 else key(program.seed, "rank", world.share_rank)
        super().__init__(
            program.pipe.ordinals(), seed, epoch.epoch, seed_globals=seed_globals if draws else None,
            spot=spot, clock=epoch._meter.tail,
        )  # fmt: skip
        self._iterator = epoch
        self._run = run
        self._bottom = program.tail[0].inputs[0]

    def open(self, node: Pipe[Any], state: Any = None, turn: int = 0, paired: bool = False) -> Any:
        if node is not self._bottom:
            return super().open(node, state, turn, paired)
        return _RunInput(self._iterator, state, turn if state is None else state.turn, self._run)


class _RunInput(InputCursor[Any]):
    """A run, as the input of the first op of the tail."""

    def __init__(self, epoch: "Epoch[Any]", at: RunPlace | None, turn: int, run: "Run | None") -> None:
        self._epoch = epoch
        self._turn = turn
        epoch._run = run or epoch._begin(at, turn)

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
