"""Turns: how ranks that advance at different speeds share positions, stop anywhere, and go on in another world.

Behind a filter a rank cannot know how far the others are, so here single positions are dealt in turn. What is left of
an epoch is then more than one number. It is a `Remaining`:

    start     everything below this position is delivered
    levels    for each world that the epoch has been through, how many positions each of its ranks has taken. The
              positions that a level leaves over, in order, are those that the next level deals out: k -> at(k).
    atoms     tickets that were begun: their positions, and how many of their outputs are delivered already

The tickets of a rank follow from (remaining, ranks, rank, block) alone: first begun tickets, then blocks of the
positions that are dealt to it. So the place of a job is two numbers for each rank: whole tickets that are delivered,
and outputs of the next ticket that are. `remaining_after` turns these into the Remaining that the next world begins
with; levels that no longer matter disappear."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

Progression = tuple[int, int, int]
"""The positions first, first + stride, first + 2 stride, ...: (first, stride, how many)."""
BegunTicket = tuple[tuple[Progression, ...], int]
"""The positions of a ticket, and how many of its outputs are delivered already."""
RankProgress = tuple[int, int]
"""How many tickets of a rank are delivered, and how many outputs of the next one."""


class Remaining(NamedTuple):
    """What the ranks of a job have not delivered yet. (These names stand in snapshots.)"""

    start: int = 0
    levels: tuple[tuple[int, ...], ...] = ()
    atoms: tuple[BegunTicket, ...] = ()

    def at(self, index: int) -> int:
        """The position that is dealt out as number `index`."""
        for counts in reversed(self.levels):
            index = level(counts).at(index)
        return self.start + index

    def count(self, length: int) -> int:
        """How many positions below `length` are left to be dealt out."""
        left = max(0, length - self.start)
        for counts in self.levels:
            left = level(counts).below(left)
        return left


class Level:
    """What is left of 0, 1, 2, ... when rank j of several has taken the first counts[j] of its turns j, j + ranks, ...

    These are the numbers j + i * ranks with i >= counts[j], in order.
    """

    def __init__(self, counts: tuple[int, ...]) -> None:
        self._counts = counts
        # Row i holds the numbers i * ranks ... (i + 1) * ranks. Rows between two heights lack the same ranks; the last
        # of these bands never ends.
        self._heights = sorted(set(counts))
        heights, ordered = self._heights, sorted(counts)
        sizes = [(after - row) * bisect_right(ordered, row) for row, after in pairwise(heights)]
        self._firsts = [0, *accumulate(sizes)]
        self._band = -1
        self._ranks: list[int] = []

    def at(self, index: int) -> int:
        band = bisect_right(self._firsts, index) - 1
        row = self._heights[band]
        if band != self._band:
            self._band, self._ranks = band, [j for j, taken in enumerate(self._counts) if taken <= row]
        rows, place = divmod(index - self._firsts[band], len(self._ranks))
        return (row + rows) * len(self._counts) + self._ranks[place]

    def below(self, number: int) -> int:
        """How many of the numbers that are left are smaller than this."""
        ranks = len(self._counts)
        return sum(max(0, -((j - number) // ranks) - taken) for j, taken in enumerate(self._counts))

    @property
    def even(self) -> tuple[int, int]:
        """(index, shift): from this index on nothing is missing any more, and index k is the number k + shift."""
        return self._firsts[-1], self._heights[-1] * len(self._counts) - self._firsts[-1]


@lru_cache(maxsize=64)
def level(counts: tuple[int, ...]) -> Level:
    return Level(counts)


class RankTickets:
    """The tickets of one rank: begun ones, then blocks that make up for fewer begun ones than others have, then blocks
    of its turns."""

    def __init__(self, rest: Remaining, ranks: int, rank: int, block: int, length: int) -> None:
        self.rest = rest
        self.block = block
        self._ranks = ranks
        self._rank = rank
        self._atoms = rest.atoms[rank::ranks]
        left = rest.count(length)
        extra = _extra([_weight(rest.atoms[r::ranks]) for r in range(ranks)], left)
        self.made_up = sum(extra)
        """Positions that go to ranks with fewer begun tickets than others, before turns are dealt."""
        self._from = sum(extra[:rank])
        self._extra = extra[rank]
        self._in_turn = max(0, -((rank - left + self.made_up) // ranks))
        """How many positions are dealt to this rank in turn."""
        self._before = len(self._atoms) + -(-self._extra // block)
        self.tickets = self._before + -(-self._in_turn // block)

    def positions(self, ticket: int) -> Sequence[int]:
        """The positions of a ticket."""
        atoms, block, rest = len(self._atoms), self.block, self.rest
        if ticket < atoms:
            return positions_of(self._atoms[ticket][0])
        if ticket < self._before:
            first = (ticket - atoms) * block
            many = range(self._from + first, self._from + min(first + block, self._extra))
        else:
            first = (ticket - self._before) * block
            start, step = self.made_up + self._rank, self._ranks
            many = range(start + first * step, start + min(first + block, self._in_turn) * step, step)
        if many.step == 1 and not rest.levels:
            return range(rest.start + many.start, rest.start + many.stop)
        return [rest.at(i) for i in many]

    def skip(self, ticket: int) -> int:
        """How many outputs of a ticket are delivered already."""
        return self._atoms[ticket][1] if ticket < len(self._atoms) else 0

    def left(self, ticket: int, gone: int) -> tuple[list[BegunTicket], int]:
        """When this rank has delivered so many tickets, and `gone` outputs of the next: the tickets that cannot be
        dealt anew, and how many positions it took in turn."""
        atoms = list(self._atoms[ticket:])
        taken = max(0, ticket - self._before)
        atoms += [(progressions(self.positions(t)), 0) for t in range(max(ticket, len(self._atoms)), self._before)]
        if gone and ticket < self._before:
            atoms[0] = (atoms[0][0], atoms[0][1] + gone)
        elif gone and ticket < self.tickets:
            atoms.append((progressions(self.positions(ticket)), gone))
            taken += 1
        return atoms, taken * self.block


def _weight(atoms: Sequence[BegunTicket]) -> int:
    """About how many positions of these tickets are still to be delivered."""
    return sum(max(0, sum(count for _, _, count in pieces) - skip) for pieces, skip in atoms)


def _extra(weights: list[int], left: int) -> list[int]:
    """How many positions each rank gets in advance, so that all have equally much to do, as far as positions are
    left."""
    levels = range(min(weights), max(weights) + 1)
    fitting = bisect_right(levels, left, key=lambda level: sum(max(0, level - weight) for weight in weights))
    return [max(0, levels[fitting - 1] - weight) for weight in weights]


def remaining_after(rest: Remaining, block: int, progress: Sequence[RankProgress], length: int) -> Remaining:
    """What is left when each rank has come so far."""
    ranks = len(progress)
    atoms: list[BegunTicket] = []
    taken: list[int] = []
    made_up = 0
    for rank, (ticket, gone) in enumerate(progress):
        turns = RankTickets(rest, ranks, rank, block, length)
        begun, many = turns.left(ticket, gone)
        atoms += begun
        taken.append(many)
        made_up = turns.made_up
    return _shorter(Remaining(rest.start, (*rest.levels, (made_up,), tuple(taken)), tuple(atoms)))


def _shorter(rest: Remaining) -> Remaining:
    """The same, without levels that change nothing any more."""
    start, levels = rest.start, list(rest.levels)
    while levels:
        counts = levels.pop()
        rows = min(counts)
        reached, shift = _even(tuple(levels))
        if rows * len(counts) >= reached:
            # Every rank is past the gaps of the levels before.
            start += shift + rows * len(counts)
            levels = []
            counts = tuple(given - rows for given in counts)
        if any(counts):
            return Remaining(start, (*levels, counts), rest.atoms)
    return Remaining(start, (), rest.atoms)


def _even(levels: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
    """(index, shift) as `Level.even`, for all these levels one after the other."""
    reached = shift = 0
    for counts in levels:
        first, ahead = level(counts).even
        # Past both: the outer level's gaps begin at the number `reached`.
        reached = max(first, reached - ahead)
        shift += ahead
    return reached, shift


def progressions(positions: Sequence[int]) -> tuple[Progression, ...]:
    """The positions as arithmetic progressions, found greedily."""
    pieces: list[Progression] = []
    for position in positions:
        if pieces:
            first, stride, count = pieces[-1]
            if count == 1 or position == first + stride * count:
                pieces[-1] = (first, position - first if count == 1 else stride, count + 1)
                continue
        pieces.append((position, 1, 1))
    return tuple(pieces)


def positions_of(pieces: Sequence[Progression]) -> list[int]:
    """The positions in these progressions."""
    return [first + stride * i for first, stride, count in pieces for i in range(count)]
