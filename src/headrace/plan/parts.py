"""Parts: a shuffled order in which each rank of a job needs only its own part of the stored units.

In `order.Shuffled` every rank meets every unit (row group, shard, chunk), so a job of R ranks reads the data R times.
Here all units are laid on one line, and the line is cut into `parts` parts of equal length. Position p of the order is
a row of part p mod parts:

    position    0  1  2  3  4  5  6  7  ...        rank r of R takes the positions p with p mod R = r.
    part        0  1  2  3  0  1  2  3             Where R divides `parts`, these lie in the parts c with c mod R = r,
    row of it   0  0  0  0  1  1  1  1             and no other rank reads those.

The order itself knows nothing of ranks: it is the same for every R, number of workers and batch size.

On the line, the parts stand in digit-reversed order. With radices (2, 2, 2, 2, 3), part c = d0 + 2 d1 + 4 d2 + 8 d3 +
16 d4 has place 24 d0 + 12 d1 + 6 d2 + 3 d3 + d4. So the parts of a rank of 2, 4, 8, 16 or 48 are neighbours, and a unit
that a cut divides is rarely divided between two ranks.

Inside a part, its pieces (units, or what a cut left of one) are laid end to end in a keyed order, and that line is cut
into `lanes` lanes of equal length. Each round takes one row from every lane, in a keyed sequence, and every lane goes
on by one row through its pieces, whose rows it takes in a keyed sequence of their own:

    lane 0    unit 7 ...... unit 2 ..... unit 9        round t takes row t of each lane
    lane 1    unit 4 ...... unit 0 ..... unit 5

So parts x lanes units are open at a time in the whole job, and a batch mixes rows of about as many. It is a permutation
of everything. All of it is integer arithmetic with random access, and part of the order: nothing may change.
"""

from dataclasses import dataclass, field
from math import gcd, isqrt, prod
from typing import NamedTuple

import numpy as np

from headrace.errors import BadOption
from headrace.plan.order import Chunked, Ints, Shuffled, Uint64s, Windowed, _checked, _noise, feistel
from headrace.plan.seed import key as derive
from headrace.plan.units import LANES, PARTS

# Fewer than `order` has: a unit is small beside the whole, and its rows are dealt among those of other units besides.
ROUNDS = 4
STRETCH = 256
"""Rows of a part that are worked out at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The order. `ends[u]` is the first row after unit u. `line` keys the order of the units on the line, which is the
    same in every epoch where ranks keep what they have read. `key` keys everything else, anew in every epoch."""

    ends: Ints
    line: int
    key: int
    parts: int = PARTS
    lanes: int = LANES
    _lines: "list[_Line]" = field(init=False, repr=False, default_factory=list)
    """The pieces of all parts, worked out when first asked for (a list, because the object is frozen)."""

    def __post_init__(self) -> None:
        for name, value in (("parts", self.parts), ("lanes", self.lanes)):
            if value < 1:
                raise BadOption(f"{name}={value}: give at least 1")

    @property
    def length(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def count(self) -> int:
        """Parts that there are: fewer than asked for where there are fewer rows."""
        return max(1, min(self.parts, self.length))

    def __call__(self, positions: Ints) -> Ints:
        positions = _checked(positions, self.length)
        if not positions.size:
            return positions
        line = self._laid()
        at = line.part_starts[positions % self.count] + self._inside(positions)
        piece = np.searchsorted(line.starts, at, side="right") - 1
        rows: Ints = line.rows[piece] + _shuffled(at - line.starts[piece], line.sizes[piece], line.keys[piece])
        return rows

    def lookup(self) -> Chunked:
        """Looks single positions up, a stretch of one part at a time: a rank never works out parts of other ranks. Of
        every part the stretch in use and the next one are kept."""
        return Chunked(self, STRETCH, run=1, lanes=self.count, keep=2 * self.count)

    def _inside(self, positions: Ints) -> Ints:
        """Which place in its part the row of each position has, before the rows of a piece are mixed."""
        shorter, longer = divmod(self.length, self.count)
        lanes = min(self.lanes, shorter)
        part = positions % self.count
        row = positions // self.count
        size = shorter + (part < longer)
        rounds, over = size // lanes, size % lanes
        turn = row // lanes
        # Rounds of all parts are numbered through, so that each has a sequence of lanes of its own.
        most = shorter // lanes + 1
        mixed = Windowed(self.count * most * lanes, lanes, derive(self.key, "rounds"))
        whole = turn < rounds
        lane = np.where(whole, mixed((part * most + turn) * lanes + row % lanes) % lanes, row - rounds * lanes)
        # The first `over` lanes are longer by one row: those rows come last.
        found: Ints = lane * rounds + np.minimum(lane, over) + turn
        return found

    def _laid(self) -> "_Line":
        if not self._lines:
            self._lines.append(_laid(self.ends, self.line, self.key, self.count))
        return self._lines[0]

    def reads(self, ranks: int) -> float:
        """How often the rows of the data are read in one epoch by all ranks together, each reading whole units."""
        if not self.length:
            return 1.0
        line, alike = self._laid(), gcd(ranks, self.count)
        # Ranks r, r + alike, r + 2 alike, ... all meet the parts c with c mod alike = r mod alike.
        unit = np.searchsorted(self.ends, line.rows, side="right")
        met = np.unique(np.stack([unit, line.part_of % alike]), axis=1)[0]
        sizes = np.diff(self.ends, prepend=0)
        return int(sizes[met].sum()) * (ranks // alike) / self.length


def factors(number: int) -> tuple[int, ...]:
    """The prime factors of a number, smallest first."""
    found = []
    while number > 1:
        found.append(next((factor for factor in range(2, isqrt(number) + 1) if number % factor == 0), number))
        number //= found[-1]
    return tuple(found)


def reversed_digits(radices: tuple[int, ...]) -> Ints:
    """The place on the line of each part."""
    parts = np.arange(prod(radices))
    places = np.zeros_like(parts)
    rest, weight = parts, len(parts)
    for radix in radices:
        weight //= radix
        places += rest % radix * weight
        rest = rest // radix
    return places


class _Line(NamedTuple):
    """The pieces of all parts, part after part, those of a part in their keyed order."""

    starts: Ints
    """Of each piece, counted over all parts."""
    sizes: Ints
    rows: Ints
    """The first row of each piece in the stored data."""
    keys: Uint64s
    part_of: Ints
    part_starts: Ints


def _laid(last: Ints, line_key: int, key: int, count: int) -> _Line:
    """Lays the units, whose last rows are before `last`, on the line and cuts it into `count` parts."""
    units = len(last)
    order = Shuffled(units, derive(line_key, "units"))(np.arange(units))
    unit_sizes = np.diff(last, prepend=0)[order]
    unit_rows = last[order] - unit_sizes  # the first row of each unit in the stored data
    unit_ends = np.cumsum(unit_sizes)
    unit_starts = unit_ends - unit_sizes

    shorter, longer = divmod(int(last[-1]), count)
    sizes = shorter + (np.arange(count) < longer)
    in_place = np.argsort(reversed_digits(factors(count)), kind="stable")  # the part that stands at each place
    place_starts = _starts(sizes[in_place])

    # A piece begins where a unit begins and where a part begins.
    begins = np.union1d(unit_starts[unit_starts < last[-1]], place_starts)
    lengths = np.diff(begins, append=last[-1])
    unit = np.searchsorted(unit_ends, begins, side="right")  # (empty units share their start with the next one)
    part = in_place[np.searchsorted(place_starts, begins, side="right") - 1]
    rows = unit_rows[unit] + begins - unit_starts[unit]

    noise = _noise(derive(key, "pieces"), begins)
    sequence = np.lexsort((begins, noise, part))
    lengths, rows, part = lengths[sequence], rows[sequence], part[sequence]
    keys = _noise(derive(key, "inside"), begins)[sequence]
    return _Line(_starts(lengths), lengths, rows, keys, part, _starts(sizes))


def _starts(sizes: Ints) -> Ints:
    """Where each of some neighbours begins."""
    found: Ints = np.cumsum(sizes) - sizes
    return found


def _shuffled(offsets: Ints, sizes: Ints, keys: Uint64s) -> Ints:
    """A keyed permutation of [0, size) for every entry, each with a size and a key of its own."""
    left = np.maximum(np.ceil(np.sqrt(sizes.astype(np.float64))), 1).astype(np.uint64)
    right = (sizes.astype(np.uint64) + left - np.uint64(1)) // left
    steps = [np.uint64((number + 1) * 0x9E3779B97F4A7C15 % 2**64) for number in range(ROUNDS)]
    values = feistel(offsets.astype(np.uint64), (left, right), [keys + step for step in steps])
    while len(outside := np.flatnonzero(values >= sizes.astype(np.uint64))):
        again = keys[outside]
        values[outside] = feistel(values[outside], (left[outside], right[outside]), [again + step for step in steps])
    return values.view(np.int64)
