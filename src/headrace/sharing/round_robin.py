"""Round robin: ranks take positions in turn, and what is left is dealt anew when one of them has no more samples.

Behind a filter one rank may run out of samples long before the others: the filter may even reject all that it was
dealt. Where samples are read by position, all ranks know from their votes how far each has come. So each works out by
itself what is left, and they take turns in that. Samples that a rank had made and not delivered are made again by the
rank that gets them now.

    deal 0     rank 0: positions 0 2 4 6 ...   all rejected          rank 1: 1 3 5 7 ...     batches, none delivered yet
    deal 1     rank 0: positions 1 5 9 ...                           rank 1: 3 7 11 ...

A deal that brings no step at least shows which positions hold nothing. When even that fails (the samples that are left
are fewer than the ranks, or one position holds them all) the epoch ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.engine.feeds.elastic import InTurns
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunPlace, VotedPlace
from headrace.plan.turns import RankProgress, RankTickets, Remaining, remaining_after


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """One deal: the positions that were left when it began, and how ranks take them."""

    rest: Remaining
    block: int
    """Positions of one ticket."""
    length: int
    ranks: int
    group: int
    """Samples of one batch; 0: samples are delivered one by one."""
    number: int
    """Steps that were made before this deal."""
    drops: bool = False
    """A rank without a further batch may have samples left, too few for one."""

    @classmethod
    def of(cls, at: RunPlace, length: int, group: int, drops: bool) -> "RoundRobin":
        """The deal that a place of a job belongs to."""
        groups, turns = _parts(at)
        return cls(turns.rest, turns.block, length, len(turns.progress), group, groups.number, drops)

    def place(self, progress: Sequence[RankProgress], steps: int, skipped: int) -> RunPlace:
        """The place of the job after so many steps of this deal; `progress`: how far each rank has come."""
        number = self.number + steps if self.group else 0
        turns = InTurns(self.rest, self.block, tuple(progress))
        return RunPlace(Regrouped(turns, 0, number * self.group, number), 0, skipped)

    def end(self, rank: int) -> RankProgress:
        """The progress of a rank that has nothing left."""
        return RankTickets(self.rest, self.ranks, rank, self.block, self.length).tickets, 0

    def progress_of(self, at: RunPlace) -> RankProgress:
        """How far the rank at this place has come: finished tickets, and delivered outputs of the next one."""
        groups, turns = _parts(at)
        ((ticket, part),) = turns.progress
        return ticket, part + groups.offset + at.gone

    def progress_at(self, at: EpochPlace | None) -> tuple[RankProgress, ...]:
        """How far each rank has come at a place of the job; None is the start of the epoch."""
        return ((0, 0),) * self.ranks if at is None else _parts(at)[1].progress

    def again(self, progress: Sequence[RankProgress], steps: int, moved: bool) -> "RoundRobin | None":
        """The next deal, of what is left after so many steps; None if dealing anew would change nothing."""
        rest = remaining_after(self.rest, self.block, progress, self.length)
        left = _size(rest, self.length)
        if not left or (not moved and left >= _size(self.rest, self.length)):
            return None
        return replace(self, rest=rest, number=self.number + steps)


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Ranks take whole batches in turn. All stand at one position, unless a whole batch has failed on one of them."""

    def place(self, progress: Sequence[RankProgress], steps: int, skipped: int) -> EpochPlace:
        """The place of the job: one position, which loads on any number of ranks, or the position of each rank."""
        ranks = [RunPlace(Position(position), gone, skipped) for position, gone in progress]
        return ranks[0] if all(place == ranks[0] for place in ranks) else VotedPlace(0, tuple(ranks))

    def progress_of(self, at: RunPlace) -> RankProgress:
        """The position of one rank, and how many outputs after it were delivered."""
        if at.place is None:
            return 0, at.gone
        assert isinstance(at.place, Position)
        return at.place.position, at.gone


def _parts(at: EpochPlace) -> tuple[Regrouped, InTurns]:
    groups = at.place if isinstance(at, RunPlace) else None
    assert isinstance(groups, Regrouped)
    assert isinstance(groups.source, InTurns)
    return groups, groups.source


def _size(rest: Remaining, length: int) -> int:
    """How many positions are left, including those of tickets that were begun."""
    return rest.count(length) + sum(count for pieces, _ in rest.atoms for _, _, count in pieces)
