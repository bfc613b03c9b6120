"""Elastic turns: ranks that advance at different speeds share positions, stop anywhere, and go on in another world.

Behind a filter no rank knows how far the others are, so ranks take single positions in turn (see `plan.turns`). The
place of the whole job is what was left when this world began, and two numbers for each rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from headrace.engine.feeds.dealt import Deal, Dealt
from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.feeds.positions import check_inside
from headrace.engine.program import Program
from headrace.errors import SnapshotRefused
from headrace.plan.turns import Progression, RankProgress, RankTickets, Remaining, remaining_after
from headrace.plan.world import World

MANY = 2**20
"""The most positions that a ticket of a snapshot may have."""


@dataclass(frozen=True, slots=True)
class InTurns(Place):
    """What was left when this world began, the positions of one ticket, and how far each rank has come since."""

    label: ClassVar[str] = "a place in turns"
    kind: ClassVar[str] = "turns"
    feed: ClassVar[str] = "positions"
    rest: Remaining
    block: int
    progress: tuple[RankProgress, ...]

    def check(self) -> None:
        begun = [pieces for pieces, _ in self.rest.atoms]
        stretches = [stretch for pieces in begun for stretch in pieces]
        if not (self.progress and all(self.rest.levels) and all(begun) and all(s[1] and s[2] for s in stretches)):
            raise SnapshotRefused("the turns of the snapshot are empty")
        if not 0 < self.block <= MANY or any(_size(pieces) > MANY for pieces in begun):
            raise SnapshotRefused("a block of the snapshot is empty, or too large to be one")

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

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        world, program = setting.world, setting.program
        length = program.positions(setting.epoch).length
        turns = RankTickets(self.rest, world.share_ranks, world.share_rank, self.block, length)
        deals = _deals(turns, self.progress[world.share_rank][0])

        def place(ticket: int, part: int) -> Place:
            return InTurns(self.rest, self.block, ((ticket, part),))

        return Dealt(deals, setting.epoch, place)

    def for_ranks(self, ranks: int, block: int, length: int) -> Self:
        """The same place of the epoch, for so many ranks with tickets of this size."""
        check_inside(max([self.rest.start, *(_end(pieces) for pieces, _ in self.rest.atoms)]), length)
        if len(self.progress) == ranks and self.block == block:
            return self
        return type(self)(remaining_after(self.rest, self.block, self.progress, length), block, ((0, 0),) * ranks)


def _deals(turns: RankTickets, first: int) -> Iterator[Deal]:
    for ticket in range(first, turns.tickets):
        positions = turns.positions(ticket)
        if isinstance(positions, range):
            payload: tuple[int, int, tuple[int, ...]] = (positions.start, positions.stop, ())
        else:
            payload = (0, 0, tuple(positions))
        yield Deal(positions[0], payload, ticket, ticket + 1, turns.skip(ticket))


def _size(pieces: tuple[Progression, ...]) -> int:
    return sum(count for _, _, count in pieces)


def _end(pieces: tuple[Progression, ...]) -> int:
    return max(first + stride * (count - 1) + 1 for first, stride, count in pieces)
