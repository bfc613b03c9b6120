"""The tail of a pipe: ops that must see the whole stream after work was divided, opened in the consumer."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.places import RunPlace
from headrace.observe.meter import RUN
from headrace.op import InputCursor
from headrace.pipe.cursor import Opening
from headrace.pipe.graph import Pipe
from headrace.plan.seed import BorrowedGlobals, seed_globals

if TYPE_CHECKING:
    from headrace.engine.epoch import Epoch


class Tail(Iterator[Any]):
    """The ops of the tail on top of a run; the epoch reads it as it would read the run."""

    def __init__(self, epoch: "Epoch[Any]", at: RunPlace | None) -> None:
        program, policy = epoch._pool.program, epoch._pool.policy
        # Whether user code runs here that may draw from the global generators. (In threads these are left alone.)
        draws = program.keyed and policy.kind != "thread" and any(node.op.user for node in program.tail)
        self._epoch = epoch
        self._depth = len(program.tail)
        self._cursor = _Opening(epoch, draws).open(program.pipe, None if at is None else at.cursors())
        # The user's generators are put aside while it runs.
        self._next = partial(BorrowedGlobals().run, self._cursor.__next__) if draws else self._cursor.__next__

    def __next__(self) -> Any:
        return self._next()

    def place(self) -> RunPlace:
        return RunPlace.under(self._cursor.state(), self._depth)

    def mask(self) -> list[bool] | None:
        return self._epoch._run.mask()

    @property
    def consistent(self) -> bool:
        return self._epoch._run.consistent


class _Opening(Opening):
    """Opens the ops that run in the consumer on top of a run."""

    def __init__(self, epoch: "Epoch[Any]", draws: bool) -> None:
        program = epoch._pool.program
        seeding = seed_globals if draws else None
        super().__init__(
            program.pipe.ordinals(), program.seed, epoch.epoch, seed_globals=seeding, clock=epoch._meter.tail
        )
        self._iterator = epoch
        self._bottom = program.tail[0].inputs[0]

    def open(self, node: Pipe[Any], state: Any = None, turn: int = 0, paired: bool = False) -> Any:
        if node is not self._bottom:
            return super().open(node, state, turn, paired)
        return _RunInput(self._iterator, state, turn if state is None else state.turn)


class _RunInput(InputCursor[Any]):
    """A run, as the input of the first op of the tail."""

    def __init__(self, epoch: "Epoch[Any]", at: RunPlace | None, turn: int) -> None:
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
