"""Elastic turns: ranks that advance at different speeds share positions, stop anywhere, and go on in another world.

Behind a filter no rank knows how far the others are, so single positions are dealt in turn (see `plan.turns`). The
place of the whole job is what was left when this world began, and two numbers a rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

from headrace.engine.feeds.dealt import Deal, Dealt
from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.feeds.positions import check_inside
from headrace.engine.plain import record, row, rows, whole, wholes
from headrace.engine.program import Program
from headrace.errors import SnapshotRefused
from headrace.plan.turns import Atom, RankProgress, Rest, Stretch, Turns, fold
from headrace.plan.world import World

MANY = 2**20
"""More positions than one ticket ever has."""


@dataclass(frozen=True, slots=True)
class InTurns(Place):
    """What was left when this world began, the positions of one ticket, and how far each rank has come since."""

    kind: ClassVar[str] = "turns"
    feed: ClassVar[str] = "positions"
    rest: Rest
    block: int
    progress: tuple[RankProgress, ...]

    @classmethod
    def read(cls, value: object) -> Self:
        rest, block, progress = record(value, ("rest", "block", "progress"), "a place in turns")
        start, levels, atoms = record(rest, ("start", "levels", "atoms"), "what is left of an epoch")
        counts = tuple(tuple(whole(given) for given in rows(level)) for level in rows(levels))
        begun = cast(
            tuple[Atom, ...],
            tuple(
                (tuple(wholes(piece, 3, "a piece of a ticket") for piece in rows(pieces)), whole(skip))
                for pieces, skip in (row(atom, 2, "a ticket that was begun") for atom in rows(atoms))
            ),
        )
        ranks = cast(
            tuple[RankProgress, ...], tuple(wholes(rank, 2, "the progress of a rank") for rank in rows(progress))
        )
        if (
            not ranks
            or not all(counts)
            or not all(pieces for pieces, _ in begun)
            or not all(count and stride for pieces, _ in begun for _, stride, count in pieces)
        ):
            raise SnapshotRefused("the turns of the snapshot are empty")
        if not 0 < whole(block) <= MANY or any(_size(pieces) > MANY for pieces, _ in begun):
            raise SnapshotRefused("a block of the snapshot is empty, or too large to be one")
        return cls(Rest(whole(start), counts, begun), block, ranks)

    def plain(self) -> dict[str, Any]:
        return {"rest": self.rest._asdict(), "block": self.block, "progress": self.progress}

    def describe(self) -> str:
        tickets = ", ".join(str(number) for number, _ in self.progress)
        return (
            f"positions taken in turn from {self.rest.start}: {tickets} blocks of {self.block} by "
            f"{len(self.progress)} ranks"
        )

    def inputs(self, world: World) -> int:
        tickets = sum(number for number, _ in self.progress)
        return (self.rest.start + tickets * self.block) // len(self.progress)

    def gone(self, rank: int) -> int:
        return self.progress[rank][1]

    def fit(self, program: Program, stage: int) -> Place:
        Place.fit(self, program, stage)
        if program.stages[stage].group is not None or len(program.stages) != 2 or program.tail:
            raise SnapshotRefused(
                "the snapshot is of ranks that took single samples in turn; those of this pipe do not"
            )
        return self

    def open(self, setting: Setting, stage: int) -> Feed:
        world, program = setting.world, setting.program
        indexed = program.head.indexed(program.seed, setting.epoch)
        assert indexed is not None
        turns = Turns(self.rest, world.share_ranks, world.share_rank, self.block, indexed.length)
        return Dealt(_deals(turns, self.progress[world.share_rank][0]), setting.epoch, single=True)

    def for_ranks(self, ranks: int, block: int, length: int) -> Self:
        """The same place of the epoch, for so many ranks with tickets of this size."""
        check_inside(max([self.rest.start, *(_end(pieces) for pieces, _ in self.rest.atoms)]), length)
        if len(self.progress) == ranks and self.block == block:
            return self
        return type(self)(fold(self.rest, self.block, self.progress, length), block, ((0, 0),) * ranks)


class _Turn(NamedTuple):
    """The place of one rank before a ticket of its own."""

    turns: Turns
    ticket: int
    part: int = 0

    def place(self) -> InTurns:
        return InTurns(self.turns.rest, self.turns.block, ((self.ticket, self.part),))

    def inside(self, gone: int) -> "_Turn":
        return _Turn(self.turns, self.ticket, gone)


def _deals(turns: Turns, first: int) -> Iterator[Deal]:
    for ticket in range(first, turns.tickets):
        positions = turns.positions(ticket)
        if isinstance(positions, range):
            payload: tuple[int, int, tuple[int, ...]] = (positions.start, positions.stop, ())
        else:
            payload = (0, 0, tuple(positions))
        yield Deal(positions[0], payload, _Turn(turns, ticket), _Turn(turns, ticket + 1), turns.skip(ticket))


def _size(pieces: tuple[Stretch, ...]) -> int:
    return sum(count for _, _, count in pieces)


def _end(pieces: tuple[Stretch, ...]) -> int:
    return max(first + stride * (count - 1) + 1 for first, stride, count in pieces)
