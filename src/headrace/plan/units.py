"""Units: which samples are cheap to read together, and how much of them a shuffled order keeps open.

A unit is what is read at once: a row group of a Parquet file, a stretch of a shard, a compressed chunk. Small data is
shuffled as if there were none. Larger data has the order of `plan.parts`, of which an `Arrangement` says how many parts
and lanes there are. It follows from the data and from what the user says, never from the machine or from `memory=`: the
same pipe has the same order everywhere.
"""

from dataclasses import dataclass
from math import ceil, gcd
from typing import NamedTuple

from headrace.plan.order import Ints

PARTS = 48
"""Divided by 1, 2, 3, 4, 6, 8, 12, 16, 24 and 48 ranks."""
DIVISORS = (48, 24, 16, 12, 8, 6, 4, 3, 2, 1)
LANES = 4
LARGE = 128 << 20
"""Data up to this many bytes is shuffled uniformly, and units that are open together take at most about as much: half
of what a source holds in memory by default. Part of the order: another value would change it."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Rows that are cheap to read together: `ends[u]` is the first row after unit u."""

    ends: Ints
    hold: int
    """How many fit into the memory that there is. Nothing of the order depends on it."""
    total: int
    """Bytes of all rows, as they lie in memory."""
    largest: int
    """Bytes that an open unit takes, at the most; 0 where rows are read one by one, and nothing is kept."""
    name: str = "row groups"

    @property
    def count(self) -> int:
        return len(self.ends)


class Arrangement(NamedTuple):
    """Parts and lanes of an order: parts x lanes units stand open in the whole job.

    (Its repr is part of the fingerprint of sources: names here must not change.)
    """

    parts: int
    lanes: int

    @property
    def open(self) -> int:
        return self.parts * self.lanes


def choose_arrangement(units: Units, quality: float | None = None, parts: int | None = None) -> Arrangement | None:
    """How a shuffled order of these units is made; None: uniformly, as if there were no units."""
    if quality == 1 or (quality is None and parts is None and units.total <= LARGE):
        return None
    if quality is not None:
        room = most = max(1, ceil(quality * units.count))
    else:
        room = max(1, LARGE // units.largest if units.largest else PARTS * LANES)
        most = LANES
    if parts is None:
        parts = next(divisor for divisor in DIVISORS if divisor <= room)
    return Arrangement(parts, max(1, min(most, room // parts)))


def times_read(ranks: int, parts: int) -> int:
    """How often a job with these ranks reads data in these parts, not counting units that are cut between parts."""
    return ranks // gcd(ranks, parts)


def better_rank_count(ranks: int, parts: int) -> int | None:
    """The next number of ranks that reads the data fewer times, a larger one if any; None if it is read only once."""
    now = times_read(ranks, parts)
    if now == 1:
        return None
    larger = (more for more in range(ranks + 1, ranks + parts + 1) if times_read(more, parts) < now)
    return next(larger, parts)
