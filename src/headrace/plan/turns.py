"""Turns: how ranks that advance at different speeds share positions, stop anywhere, and go on in another world.

Behind a filter a rank cannot know how far the others are, so here single positions are dealt in turn, and what is left
of an epoch is no longer one number. It is a `Rest`:

    start     everything below it is delivered
    levels    for each world that the epoch has been through, how many positions each of its ranks has taken. The
              positions that are left over by a level, in order, are what the next level deals out: k -> at(k).
    atoms     tickets of which some outputs are delivered already: which positions, and how many outputs to leave out

A rank's tickets follow from (rest, ranks, rank, block) alone: first its atoms, then blocks of what is dealt to it. So
where a job stands is two numbers a rank: whole tickets behind it, and outputs gone of the next one. `fold` turns these
into the Rest of the next world; levels that no longer matter disappear.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

Stretch = tuple[int, int, int]
"""Positions first, first + stride, ..., so many of them."""
Atom = tuple[tuple[Stretch, ...], int]
RankProgress = tuple[int, int]
"""Tickets behind a rank, and outputs gone of the next one."""


class Rest(NamedTuple):
    """What the ranks of a job have not delivered yet."""

    start: int = 0
    levels: tuple[tuple[int, ...], ...] = ()
    atoms: tuple[Atom, ...] = ()

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
    """The numbers j + i * ranks with i >= counts[j], in order: what each rank has taken is missing."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self._counts = counts
        # Rows between two heights have the same ranks in them; the last of these bands never ends.
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
        """How many of them are smaller than this."""
        ranks = len(self._counts)
        return sum(max(0, -((j - number) // ranks) - taken) for j, taken in enumerate(self._counts))

    @property
    def even(self) -> tuple[int, int]:
        """From this index on nothing is missing any more: index k is number k + the second."""
        return self._firsts[-1], self._heights[-1] * len(self._counts) - self._firsts[-1]


@lru_cache(maxsize=64)
def level(counts: tuple[int, ...]) -> Level:
    return Level(counts)


class Turns:
    """The tickets of one rank: atoms, then positions that make up for fewer atoms than others have, then its turns."""

    def __init__(self, rest: Rest, ranks: int, rank: int, block: int, length: int) -> None:
        self.rest = rest
        self.block = block
        self._ranks = ranks
        self._rank = rank
        self._atoms = rest.atoms[rank::ranks]
        left = rest.count(length)
        extra = _extra([_weight(rest.atoms[r::ranks]) for r in range(ranks)], left)
        self.made_up = sum(extra)
        """Positions of all ranks that make up for atoms: these come first."""
        self._from = sum(extra[:rank])
        self._extra = extra[rank]
        self._mine = max(0, -((rank - left + self.made_up) // ranks))
        """Positions that are dealt to this rank in turn."""
        self._before = len(self._atoms) + -(-self._extra // block)
        self.tickets = self._before + -(-self._mine // block)

    def positions(self, ticket: int) -> Sequence[int]:
        """What a ticket is made from."""
        atoms, block, rest = len(self._atoms), self.block, self.rest
        if ticket < atoms:
            return spread(self._atoms[ticket][0])
        if ticket < self._before:
            first = (ticket - atoms) * block
            many = range(self._from + first, self._from + min(first + block, self._extra))
        else:
            first = (ticket - self._before) * block
            start, step = self.made_up + self._rank, self._ranks
            many = range(start + first * step, start + min(first + block, self._mine) * step, step)
        if many.step == 1 and not rest.levels:
            return range(rest.start + many.start, rest.start + many.stop)
        return [rest.at(i) for i in many]

    def skip(self, ticket: int) -> int:
        """How many outputs of a ticket are delivered already."""
        return self._atoms[ticket][1] if ticket < len(self._atoms) else 0

    def left(self, ticket: int, gone: int) -> tuple[list[Atom], int]:
        """Once a rank has come so far: tickets that cannot be dealt anew, and how many positions it took in turn."""
        atoms = list(self._atoms[ticket:])
        taken = max(0, ticket - self._before)
        atoms += [(pieces_of(self.positions(t)), 0) for t in range(max(ticket, len(self._atoms)), self._before)]
        if gone and ticket < self._before:
            atoms[0] = (atoms[0][0], atoms[0][1] + gone)
        elif gone and ticket < self.tickets:
            atoms.append((pieces_of(self.positions(ticket)), gone))
            taken += 1
        return atoms, taken * self.block


def _weight(atoms: Sequence[Atom]) -> int:
    """About how many positions of these tickets are still to be delivered."""
    return sum(max(0, sum(count for _, _, count in pieces) - skip) for pieces, skip in atoms)


def _extra(weights: list[int], left: int) -> list[int]:
    """How many positions each rank gets in advance, so that all have equally many, as far as these reach."""
    low, high = min(weights), max(weights)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, middle - weight) for weight in weights) <= left:
            low = middle
        else:
            high = middle - 1
    return [max(0, low - weight) for weight in weights]


def fold(rest: Rest, block: int, progress: Sequence[RankProgress], length: int) -> Rest:
    """What is left once each rank has come so far."""
    ranks = len(progress)
    atoms: list[Atom] = []
    taken: list[int] = []
    made_up = 0
    for rank, (ticket, gone) in enumerate(progress):
        turns = Turns(rest, ranks, rank, block, length)
        begun, many = turns.left(ticket, gone)
        atoms += begun
        taken.append(many)
        made_up = turns.made_up
    return _shorter(Rest(rest.start, (*rest.levels, (made_up,), tuple(taken)), tuple(atoms)))


def _shorter(rest: Rest) -> Rest:
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
            return Rest(start, (*levels, counts), rest.atoms)
    return Rest(start, (), rest.atoms)


def _even(levels: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
    """From which index on nothing is missing in all these levels, and how far numbers are ahead of indices there."""
    reached = shift = 0
    for counts in levels:
        first, ahead = level(counts).even
        # Past both: the outer level's gaps begin at the number `reached`.
        reached = max(first, reached - ahead)
        shift += ahead
    return reached, shift


def pieces_of(positions: Sequence[int]) -> tuple[Stretch, ...]:
    """Positions as few arithmetic progressions as a greedy look finds."""
    pieces: list[Stretch] = []
    for position in positions:
        if pieces:
            first, stride, count = pieces[-1]
            if count == 1 or position == first + stride * count:
                pieces[-1] = (first, position - first if count == 1 else stride, count + 1)
                continue
        pieces.append((position, 1, 1))
    return tuple(pieces)


def spread(pieces: Sequence[Stretch]) -> list[int]:
    """The positions of these pieces."""
    return [first + stride * i for first, stride, count in pieces for i in range(count)]
