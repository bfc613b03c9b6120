"""Places of an epoch: what a snapshot says under "at", and what an epoch goes on from.

    RunPlace     where one process stands: the place of the last stage's feed, how many outputs behind it are gone, how
                 many samples have failed so far, and the states of the ops that run in the consumer
    JobPlace     where each rank of a job stood when ranks last told each other, and how many steps ago that was

None stands for the start of an epoch. Plain data is read piece by piece before anything is run from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from headrace.engine.feeds.place import FORMER, Place
from headrace.engine.plain import Json, PlainRecord, brief, kind_of, plain
from headrace.engine.program import Program
from headrace.errors import SnapshotRefused
from headrace.pipe.cursor import State


@dataclass(frozen=True, slots=True)
class OpState(PlainRecord):
    """Where an op in the consumer stands. (Its input is the next op of `RunPlace.ops`, or the run.)"""

    label: ClassVar[str] = "the state of an op"
    emitted: int
    skip: int
    note: Any
    turn: int


@dataclass(frozen=True, slots=True)
class DeliveredAhead(PlainRecord):
    """Batches that were delivered before their turn (ordered=False)."""

    label: ClassVar[str] = "what a snapshot says of batches that came before their turn"
    size: int
    """Samples of a batch: with another size, `tickets` would name other samples."""
    tickets: tuple[int, ...]
    """The numbers of these batches, counted from the place on."""


@dataclass(frozen=True, slots=True)
class RunPlace(PlainRecord):
    """Where one process stands in an epoch."""

    label: ClassVar[str] = "the place of a snapshot"
    kind: ClassVar[str] = "run"
    optional: ClassVar[tuple[str, ...]] = ("ahead",)
    place: Place | None = None
    """None: the start."""
    gone: int = 0
    """Outputs after that place that were delivered."""
    skipped: int = 0
    """Samples that failed and were left out before it."""
    turn: int = 0
    """How often a `cycle` in the consumer has started the run again."""
    ops: tuple[OpState, ...] = ()
    """Where the ops stand that run in the consumer, the last one first."""
    ahead: DeliveredAhead | None = None
    """Batches after that place that were delivered before their turn."""

    def fit(self, program: Program) -> Self:
        """The place, if it can belong to this program; else SnapshotRefused."""
        if len(self.ops) != len(program.tail):
            raise SnapshotRefused(
                f"the snapshot has states of {len(self.ops)} ops in the consumer, and this pipe runs "
                f"{len(program.tail)} there"
            )
        if self.place is not None:
            self.place.fit(program, len(program.stages) - 1)
        last = program.last
        counts = program.stages[0].feed != "strand" and last.single
        if self.ahead is not None and not (counts and (last.group or 0) == self.ahead.size):
            raise SnapshotRefused(
                f"the snapshot was taken with ordered=False, when some batches of {self.ahead.size} had come before "
                "their turn: go on with batches of that size"
            )
        return self

    def describe(self) -> str:
        words = "the start of the epoch" if self.place is None else self.place.describe()
        if self.ahead is not None:
            words += f", and {len(self.ahead.tickets)} batches that came before their turn"
        if self.gone:
            words += f", and {self.gone} more outputs of the ticket there"
        words += f"; {self.skipped} samples left out so far" if self.skipped else ""
        if self.ops:
            return f"{self.ops[0].emitted} emitted by the last op in the consumer; below it: {words}"
        return words

    # --- ops in the consumer ------------------------------------------------------------------------------------------

    @classmethod
    def under(cls, state: State, depth: int) -> "RunPlace":
        """The place that the states of so many cursors on top of a run say."""
        ops = []
        for _ in range(depth):
            emitted, skip, note, turn, (state,) = state
            ops.append(OpState(emitted, skip, note, turn))
        bottom: Any = state
        assert isinstance(bottom, RunPlace)
        return RunPlace(bottom.place, bottom.gone, bottom.skipped, bottom.turn, tuple(ops), bottom.ahead)

    def cursors(self) -> State:
        """The states of the cursors in the consumer at this place: the reverse of `under`."""
        state: Any = self
        for op in reversed(self.ops):
            state = [op.emitted, op.skip, op.note, op.turn, [state]]
        return state  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class JobPlace(PlainRecord):
    """Where each rank stood when ranks last told each other how many batches they have, and how many steps all have
    made since."""

    label: ClassVar[str] = "the place of a job"
    kind: ClassVar[str] = "job"
    steps: int
    ranks: tuple[RunPlace, ...]

    def check(self) -> None:
        if not self.ranks:
            raise SnapshotRefused("the snapshot has the places of no ranks")

    def fit(self, program: Program) -> Self:
        for place in self.ranks:
            place.fit(program)
        return self

    def describe(self) -> str:
        stood = "; ".join(place.describe() for place in self.ranks)
        return f"{self.steps} steps after {len(self.ranks)} ranks stood at: {stood}"


EpochPlace = RunPlace | JobPlace


class HandedOn(Protocol):
    """What is known of the batch that the caller has, where something between loader and caller takes batches ahead."""

    state: Any
    """The state of the loader after that batch; None if it is not known."""
    count: int
    """How many batches of the epoch the caller has had."""

    @property
    def mask(self) -> list[bool] | None: ...


class RunningEpoch(Protocol):
    """A run, or one with ops of the consumer on top of it, as sharing sees it."""

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def place(self) -> RunPlace:
        """Where it stands."""

    def mask(self) -> list[bool] | None:
        """Which samples of the batch delivered last are real, where some only fill it."""

    @property
    def consistent(self) -> bool:
        """False after an exception out of the middle of the loop."""


def read_epoch_place(value: object) -> EpochPlace | None:
    """The place under "at" in a snapshot."""
    if value is None:
        return None
    kinds: dict[str | None, type[RunPlace] | type[JobPlace]] = {"run": RunPlace, "job": JobPlace}
    kind = kinds.get(kind_of(value))
    if kind_of(value) == "voted":
        raise SnapshotRefused(FORMER)
    if kind is None:
        raise SnapshotRefused(f"the place of a snapshot is not one that this version knows: {brief(value)}")
    return kind.read(value)


def plain_epoch_place(at: EpochPlace | None) -> Json:
    """The place as JSON."""
    return None if at is None else plain(at.plain())
