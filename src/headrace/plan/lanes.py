"""Lanes: a shuffled order over data that is cheap to read in units (row groups of files), few units open at a time.

All units are put in a keyed random order and laid end to end; that line is cut into `lanes` lanes of equal length. Each
round of the order takes one row from every lane, in a keyed random sequence, and every lane goes on by one row through
its units, whose rows it takes in a keyed random sequence of their own:

    lane 0    unit 7 ...... unit 2 ..... unit 9        round t takes row t of each lane
    lane 1    unit 4 ...... unit 0 ..... unit 5
    lane 2    unit 8 ...... unit 1 ..... unit 3

So at every moment `lanes` units are open, each unit is read once (twice if a cut falls into it), a row can come next to
the rows of `lanes` units, and the rows of one unit are spread over `lanes` times their number. It is a permutation of
everything: every row comes exactly once. As in `order`, all of it is integer arithmetic with random access, and part of
the order: nothing here may change.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.plan.order import Ints, Shuffled, Windowed, Words, _checked, _hash, _noise
from headrace.plan.seed import key as derive

# Fewer than `order` has: a unit is small beside the whole, and its rows are dealt among those of other units besides.
ROUNDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Rows that are cheap to read together: `ends[u]` is the first row after unit u. About `hold` fit in memory."""

    ends: Ints
    hold: int

    @property
    def count(self) -> int:
        return len(self.ends)


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    ends: Ints
    lanes: int
    key: int

    def __post_init__(self) -> None:
        if not self.lanes >= 1:
            raise BadOption(f"lanes={self.lanes}: give at least 1 lane")

    @property
    def length(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __call__(self, positions: Ints) -> Ints:
        positions = _checked(positions, self.length)
        if not positions.size:
            return positions
        lanes = min(self.lanes, self.length)
        places = self._line(positions, lanes)
        starts, line, sizes, keys = _line(self.ends.tobytes(), self.key)
        unit = np.searchsorted(line, places, side="right") - 1
        inside = _shuffled(places - line[unit], sizes[unit], keys[unit])
        found: Ints = starts[unit] + inside
        return found

    def _line(self, positions: Ints, lanes: int) -> Ints:
        """Where on the line of all units the row of each position stands."""
        rounds, over = divmod(self.length, lanes)
        whole = positions < rounds * lanes
        mixed = Windowed(max(1, rounds * lanes), lanes, derive(self.key, "rounds"))
        turn = np.where(whole, positions // lanes, rounds)
        lane = np.where(whole, mixed(np.where(whole, positions, 0)) % lanes, 0)
        # The first `over` lanes are longer by one row: those rows come last.
        lane = np.where(whole, lane, positions - rounds * lanes)
        starts: Ints = lane * rounds + np.minimum(lane, over)
        return starts + turn


@lru_cache(maxsize=4)
def _line(ends: bytes, key: int) -> tuple[Ints, Ints, Ints, Words]:
    """The units in their random order: their first rows, where each begins on the line, their sizes and their keys."""
    last = np.frombuffer(ends, np.int64)
    count = len(last)
    order = Shuffled(count, derive(key, "units"))(np.arange(count))
    first = np.concatenate([np.zeros(1, np.int64), last[:-1]])
    sizes = (last - first)[order]
    line = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)[:-1]])
    return first[order], line, sizes, _noise(derive(key, "inside"), order)


def _shuffled(offsets: Ints, sizes: Ints, keys: Words) -> Ints:
    """A keyed permutation of [0, size) for every entry, each with a size and a key of its own (as `order._Feistel`)."""
    left = np.maximum(np.ceil(np.sqrt(sizes.astype(np.float64))), 1).astype(np.uint64)
    right = (sizes.astype(np.uint64) + left - np.uint64(1)) // left
    values = offsets.astype(np.uint64)
    _pass(values, left, right, keys)
    while len(outside := np.flatnonzero(values >= sizes.astype(np.uint64))):
        again = values[outside]
        _pass(again, left[outside], right[outside], keys[outside])
        values[outside] = again
    return values.view(np.int64)


def _pass(values: Words, left: Words, right: Words, keys: Words) -> None:
    sides = (left, right)
    high = values // right
    halves = [high, values - high * right]
    for number in range(ROUNDS):
        changed = number % 2
        side: Any = sides[changed]
        mixed = keys + np.uint64((number + 1) * 0x9E3779B97F4A7C15 % 2**64)
        step = _hash(halves[1 - changed] ^ mixed, 0, side)
        moved = halves[changed] + step
        halves[changed] = np.minimum(moved, moved - side)
    values[:] = halves[0] * right + halves[1]
