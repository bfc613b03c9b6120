"""Cursors: a graph of ops opened in one place, as an iterator with state.

A cursor is one op at work. Its state is a small tree of plain lists, `[emitted, skip, note, turn, inputs]`: go on from
the moment when the op had emitted `emitted` samples and said `note`, with its inputs in the states `inputs`, and drop
the first `skip` samples, because they were emitted already. `turn` counts how often `cycle` has started this part
again.
"""

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from headrace.op import Clock, Here, Indexed, InputCursor, Spot, place
from headrace.pipe.access import gathered, random_access
from headrace.plan.seed import key
from headrace.tracebacks import shorten

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe

State = list[Any]
CHECKPOINT = 1000
"""An op's inputs are asked for their state at most once in this many samples."""


@dataclass(slots=True, eq=False)
class Opening:
    """What all cursors of one opened graph share."""

    ordinals: dict[int, int]
    seed: int
    epoch: int
    strand: int = 0
    strands: int = 1
    seed_globals: Callable[[int], None] | None = None
    spot: Spot = field(default_factory=Spot)
    clock: Clock | None = None
    checkpoint: int | None = None
    """How often an op's inputs are asked for their state, if not as `CHECKPOINT` says."""
    opened: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict, init=False)
    """What the readers of one node share (`InputCursor.shared`), by the node's id and turn."""

    def here(self, node: "Pipe[Any]", turn: int = 0, paired: bool = False) -> Here:
        ordinal = self.ordinals[id(node)]
        seed = op_seed(self.seed, self.epoch, ordinal)
        turn_seed = key(seed, "turn", turn) if turn else seed
        here = Here(turn_seed, self.epoch, ordinal, self.strand, self.strands, self.spot)
        here.clock = self.clock
        here.lenient = here.lenient and not paired
        return here

    def enter(self, epoch: int) -> None:
        """From now on it is this epoch."""
        self.epoch = epoch

    def open(self, node: "Pipe[Any]", state: State | None = None, turn: int = 0, paired: bool = False) -> "Cursor":
        """`paired`: an op further on pairs these samples with others."""
        kind = Cursor if self.clock is None else ClockedCursor
        return kind(self, node, state, turn, paired)


def _copied_note(note: object) -> Any:
    """A copy of a note, if it could be changed: an op may go on counting in the list that it gave to `rest()`."""
    return copy.deepcopy(note) if isinstance(note, list | tuple | dict) else note


class Cursor(InputCursor[Any]):
    """One op at work."""

    __slots__ = (
        "__weakref__",
        "_captured",
        "_flow",
        "_opening",
        "_paired",
        "_seeding",
        "_skip",
        "_standing",
        "emitted",
        "here",
        "inputs",
        "node",
        "note",
        "turn",
    )

    def __init__(
        self, opening: Opening, node: "Pipe[Any]", state: State | None, turn: int, paired: bool = False
    ) -> None:
        self._opening = opening
        self._paired = paired
        self.node = node
        self._seeding = opening.seed_globals if node.op.user else None
        self._start(state, turn)

    def _start(self, state: State | None, turn: int) -> None:
        emitted, skip, note, turn, below = state if state is not None else (0, 0, None, turn, None)
        self.turn = turn
        self.inputs = tuple(
            self._opening.open(source, None if below is None else below[i], turn, self._paired or self.node.op.pairs)
            for i, source in enumerate(self.node.inputs)
        )
        self.here = self._opening.here(self.node, turn, self._paired)
        self.here.emitted = self.emitted = emitted
        self.note, self.here.note = note, _copied_note(note)
        self.here.replays = skip
        self.here._rest = WeakMethod(self._rest)
        self.here._stand = WeakMethod(self._stand)
        self._standing: deque[tuple[int, int, list[State]]] = deque()
        self._skip = skip
        self._captured = (emitted, note, below if below is not None else [c.state() for c in self.inputs])
        self._flow = self.node.op.flow(*self.inputs, self.here)

    def __next__(self) -> Any:
        if self._skip:
            self._replay()
        return self._step()

    def _replay(self) -> None:
        """Make again what was emitted before, and drop it."""
        spot = self.here.spot
        spot.replays += 1
        try:
            while self._skip:
                self._skip -= 1
                self._step()
        finally:
            spot.replays -= 1

    def _step(self) -> Any:
        if self._seeding is not None:
            self._seeding(key(self.here.seed, "step", self.emitted))
        sample = next(self._flow)
        self.emitted += 1
        return sample

    def _rest(self, note: object) -> None:
        self.note = note = _copied_note(note)
        if not self.node.op.quiet and self.emitted - self._captured[0] >= (self._opening.checkpoint or CHECKPOINT):
            self._captured = (self.emitted, note, [c.state() for c in self.inputs])

    def _stand(self, number: int) -> None:
        self._standing.append((self.emitted, number, [c.state() for c in self.inputs]))

    def state(self) -> State:
        """Where this op and everything before it are, as plain data."""
        if self.here.oldest is not None:
            oldest, standing = self.here.oldest(), self._standing
            while standing and standing[0][1] <= oldest:
                self._captured = standing.popleft()
        if self.node.op.quiet and not self._skip:
            return [self.emitted, 0, self.note, self.turn, [c.state() for c in self.inputs]]
        emitted, note, below = self._captured
        return [emitted, self.emitted + self._skip - emitted, note, self.turn, below]

    def indexed(self) -> Indexed | None:
        """Random access to what this cursor iterates, in its turn."""
        return self._with_place(random_access(self.node, self._opening, self.turn, self._paired), self.turn)

    def gathered(self) -> Indexed | None:
        """Random access to lists of what filters and flatmaps made of each sample: see `Op.gathers`."""
        return self._with_place(gathered(self.node, self._opening, self.turn, self._paired), self.turn)

    def _with_place(self, found: Indexed | None, turn: int) -> Indexed | None:
        """Random access that says which op is at work and seeds the global generators before each call.

        Where samples come one after the other the cursors do that; here a flow asks for samples by position.
        """
        if found is None:
            return None
        spot, seed = self.here.spot, self._opening.here(self.node, turn).seed
        seeding = self._opening.seed_globals if any(node.op.user for node in self.node.nodes()) else None
        again = found.again

        def begun(ask: Callable[..., Any], first: Callable[[Any], int]) -> Callable[..., Any]:
            def asked(where: object, *more: object) -> Any:
                place.spot = spot
                if seeding is not None:
                    seeding(key(seed, "reached", first(where)))
                return ask(where, *more)

            return asked

        found.get = begun(found.get, lambda position: position)
        found.take = found.take and begun(found.take, lambda positions: int(positions[0]) if len(positions) else 0)
        found.many = found.many and begun(found.many, lambda positions: positions[0])
        found.again = lambda next_turn: self._with_place(again(next_turn), next_turn) or found
        return found

    def again(self, turn: int) -> None:
        """Start from the beginning, with the random choices of turn number `turn`."""
        self._start(None, turn)

    def repeatable(self) -> bool:
        return all(below.repeatable() for below in self.inputs)

    def reopened(self, *, epoch: int | None = None, turn: int = 0) -> "Cursor | None":
        if not self.repeatable():
            return None
        opening = copy.copy(self._opening)
        opening.opened = {}
        if epoch is not None:
            opening.enter(epoch)
        return opening.open(self.node, None, turn, self._paired)

    def shared(self) -> dict[str, Any]:
        return self._opening.opened.setdefault((id(self.node), self.turn), {})

    def origin(self) -> tuple[Any, ...]:
        opening = self._opening
        return (opening.seed, opening.strand, opening.strands, *self.node.fingerprint())


class PipeCursor(Cursor):
    """A cursor that the user's code iterates: the iterator of a pipe. The traceback of an error shows the user's lines.

    That code may be an op of another pipe, whose place must not change.
    """

    __slots__ = ()

    def __next__(self) -> Any:
        try:
            return place.apart(super().__next__)
        except StopIteration:
            raise
        except BaseException as error:
            shorten(error)
            raise


class ClockedCursor(Cursor):
    """A cursor that measures how long its op takes."""

    __slots__ = ()

    def __next__(self) -> Any:
        assert self.here.clock is not None
        return self.here.clock.note(self.here.ordinal, super().__next__)


def op_seed(seed: int, epoch: int, ordinal: int) -> int:
    """The key of one op in one epoch."""
    return key(seed, epoch, ordinal)
