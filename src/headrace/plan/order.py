"""Order is arithmetic: which index comes at which position, as a pure function with random access.

An order maps an int64 array of positions in [0, length) to the indices that come there. It is a frozen, picklable value
without a generator, and the same fields give the same order in every process, on every platform, for ever: snapshots
store a position and rely on it. So nothing here comes from numpy's generators, whose streams may change between
versions; it is all integer arithmetic modulo 2**64.

    Shuffled   a uniform-looking permutation of the whole, in O(1) memory at any length
    Windowed   the same inside consecutive blocks: no index moves `window` places or more
    Weighted   independent draws with replacement

One call costs tens of microseconds however few positions it is given: look positions up through `Chunked`.
"""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.errors import BadOption
from headrace.plan.seed import key as derive

Ints = NDArray[np.int64]
Uint64s = NDArray[np.uint64]
Words = np.uint64 | Uint64s

# Below this a permutation is a table: Feistel networks of few rounds are not uniform on tiny domains. Its entries fit
# 16 bits.
TABLE = 1 << 16
# Windows up to this size are permuted many at a time. Part of the order: another value would change it.
ROW = 1 << 12
# Also part of the order.
ROUNDS = 8
# Temporary arrays of STRETCH words stay in the processor's cache; none is larger than SCRATCH.
STRETCH = 1 << 14
SCRATCH = 1 << 18


class Order(Protocol):
    @property
    def length(self) -> int: ...

    def __call__(self, positions: Ints) -> Ints: ...


@dataclass(frozen=True, slots=True)
class Shuffled:
    length: int
    key: int

    def __post_init__(self) -> None:
        _check_length(self.length)

    def __call__(self, positions: Ints) -> Ints:
        return self._mapped(positions, forward=True)

    def inverse(self, indices: Ints) -> Ints:
        """At which positions these indices come."""
        return self._mapped(indices, forward=False)

    def _mapped(self, values: Ints, forward: bool) -> Ints:
        values = _checked(values, self.length)
        if self.length < TABLE:
            there, back = _table(self.length, self.key)
            return (there if forward else back)[values].astype(np.int64)
        return _walk(values, self.length, self.key, forward)


@dataclass(frozen=True, slots=True)
class Windowed:
    length: int
    window: int
    key: int

    def __post_init__(self) -> None:
        _check_length(self.length)
        if self.window < 1:
            raise BadOption(f"window={self.window}: give a window of at least 1 sample")

    def __call__(self, positions: Ints) -> Ints:
        positions = _checked(positions, self.length)
        if not positions.size:
            return positions
        window = min(self.window, self.length)
        # Only the blocks that are asked for are permuted. places: which of them each position lies in.
        blocks, places = np.unique(positions // window, return_inverse=True)
        places = places.reshape(positions.shape)
        result = np.empty_like(positions)
        at_once = SCRATCH // window if window <= ROW else 1
        for first in range(0, len(blocks), at_once):
            here = (places >= first) & (places < first + at_once)
            result[here] = self._inside(blocks[first : first + at_once], window, places[here] - first, positions[here])
        return result

    def _inside(self, blocks: Ints, window: int, places: Ints, positions: Ints) -> Ints:
        starts = blocks * window
        offsets = positions - starts[places]
        if window <= ROW:
            rows = _sorted_noise(derive(self.key, "windows"), starts, window, self.length)  # shape: (blocks, window)
            found: Ints = starts[places] + rows[places, offsets]
            return found
        start = int(starts[0])
        block = Shuffled(min(window, self.length - start), derive(self.key, "block", int(blocks[0])))
        return block(offsets) + start


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """Index i comes at each position with probability weights[i] / sum(weights), whatever comes elsewhere."""

    weights: InitVar[Sequence[float] | NDArray[np.float64]]
    length: int
    key: int
    _bounds: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self, weights: ArrayLike) -> None:
        _check_length(self.length)
        given = np.asarray(weights, dtype=np.float64)
        if given.ndim != 1 or not given.size or not np.isfinite(given).all() or (given < 0).any() or not given.any():
            raise BadOption("weights must be one flat list of finite numbers, none negative, not all zero")
        # Trailing zeros are cut off so that rounding at the upper end can never select one of them.
        bounds = np.cumsum(given)[: int(np.flatnonzero(given)[-1]) + 1]
        if not np.isfinite(bounds[-1]):
            raise BadOption("the sum of the weights is not finite; scale them down")
        object.__setattr__(self, "_bounds", bounds)

    def __call__(self, positions: Ints) -> Ints:
        drawn = _uniform_at(derive(self.key, "draw"), _checked(positions, self.length)) * self._bounds[-1]
        found = np.searchsorted(self._bounds, drawn, side="right")
        picked: Ints = np.minimum(found, len(self._bounds) - 1).astype(np.int64)
        return picked


class Chunked:
    """Looks single positions up in an order: evaluates a lot of them at a time, and keeps the last `keep` lots.

    A lot is `chunk` neighbouring positions. Where several ranks share an order, the neighbours of a position belong to
    other ranks: then positions are dealt to `lanes` lanes in turn, `run` at a time, and a lot is the next runs of one.
    """

    __slots__ = ("_keep", "_kept", "_lanes", "_order", "_run", "_runs")

    def __init__(
        self, order: Order, chunk: int = 4096, *, run: int | None = None, lanes: int = 1, keep: int = 4
    ) -> None:
        if chunk < 1:
            raise BadOption(f"chunk={chunk}: give a chunk of at least 1 position")
        self._order = order
        self._run = chunk if run is None else run
        self._runs = max(1, chunk // self._run) if lanes > 1 else 1
        self._lanes = lanes
        self._keep = keep
        self._kept: dict[int, list[int]] = {}

    def _find(self, position: int) -> tuple[int, int]:
        """The lot that a position is in, and its place there. Lots of all lanes are numbered in turn."""
        run, place = divmod(position, self._run)
        turn, lane = divmod(run, self._lanes)
        lot, run = divmod(turn, self._runs)
        return lot * self._lanes + lane, run * self._run + place

    def at(self, position: int) -> int:
        lot, place = divmod(position, self._run) if self._lanes == 1 else self._find(position)
        kept = self._kept.get(lot)
        return self.span(position, position + 1)[0] if kept is None else kept[place]

    def span(self, start: int, stop: int) -> list[int]:
        """The indices at the positions [start, stop)."""
        if not 0 <= start <= stop <= self._order.length:
            raise IndexError(f"[{start}, {stop}) is outside an order of {self._order.length} positions")
        found: list[int] = []
        while start < stop:
            lot, place = self._find(start)
            size = min(stop - start, self._run - place % self._run)
            found += (self._kept.get(lot) or self._evaluate(lot))[place : place + size]
            start += size
        return found

    def _evaluate(self, lot: int) -> list[int]:
        number, lane = divmod(lot, self._lanes)
        period = self._lanes * self._run
        start = number * self._runs * period + lane * self._run
        # Unsigned, since the last run may reach beyond the length and so beyond int64.
        runs = np.arange(min(self._runs, -(-(self._order.length - start) // period)), dtype=np.uint64)
        heads = runs * np.uint64(period) + np.uint64(start)
        positions = (heads[:, None] + np.arange(self._run, dtype=np.uint64)).reshape(-1)  # from (runs, run)
        positions = positions[positions < np.uint64(self._order.length)]
        values: list[int] = self._order(positions.view(np.int64)).tolist()
        # A new dict each time: threads that share this object only ever see a whole one.
        self._kept = {**dict(list(self._kept.items())[1 - self._keep :]), lot: values}
        return values


# A keyed permutation of the rectangle [0, left) x [0, right): the near-square one that just covers [0, length).
#
# A position is a pair (l, r). Each round adds a hash of one half to the other, modulo its side, and so can be undone (a
# Feistel network). The rectangle exceeds `length` by less than one side: a value that falls into the surplus is sent
# through again until it falls inside (cycle walking). That keeps it a permutation; at most one value in 256 needs it.


@lru_cache(maxsize=64)
def _rounds_of(length: int, key: int) -> tuple[tuple[np.uint64, np.uint64], list[np.uint64]]:
    """The sides of the rectangle, and a key for each round."""
    left = isqrt(length - 1) + 1
    keys = [np.uint64(derive(key, "round", number)) for number in range(ROUNDS)]
    return (np.uint64(left), np.uint64(-(-length // left))), keys


def _walk(values: Ints, length: int, key: int, forward: bool) -> Ints:
    sides, keys = _rounds_of(length, key)
    result = values.astype(np.uint64)  # a copy, worked on in place
    flat = result.reshape(-1)
    for start in range(0, len(flat), STRETCH):
        piece = flat[start : start + STRETCH]
        piece[:] = feistel(piece, sides, keys, forward)
        while len(outside := np.flatnonzero(piece >= np.uint64(length))):
            piece[outside] = feistel(piece[outside], sides, keys, forward)
    return result.view(np.int64)


def feistel(values: Uint64s, sides: tuple[Words, Words], keys: Sequence[Words], forward: bool = True) -> Uint64s:
    """Each value sent through all rounds; sides and keys are the same for all, or one for each."""
    left = values // sides[1]
    halves = [left, values - left * sides[1]]
    for number in range(len(keys)) if forward else reversed(range(len(keys))):
        changed = number % 2
        side = sides[changed]
        step = _hash(halves[1 - changed], keys[number], side)
        # Both results are below 2 * side; the smaller of (x, x - side) is x modulo side, since the wrong one wraps.
        moved = halves[changed] + step if forward else halves[changed] + (side - step)
        halves[changed] = np.minimum(moved, moved - side)
    joined: Uint64s = halves[0] * sides[1] + halves[1]
    return joined


def _hash(half: Uint64s, key: Words, side: Words) -> Uint64s:
    """A keyed hash of each half (below 2**32) to [0, side)."""
    mixed = half ^ key
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed >>= np.uint64(32)
    # 32 random bits times the side, upper half: a fraction of the side without a division.
    mixed *= side
    mixed >>= np.uint64(32)
    return mixed


def permutation(length: int, key: int) -> list[int]:
    """All of [0, length), in a random order that is the same for ever."""
    return Shuffled(length, key)(np.arange(length, dtype=np.int64)).tolist() if length else []


def uniform(key: int, start: int, count: int) -> NDArray[np.float64]:
    """Random numbers in [0, 1): those at positions start, start + 1, ... of an endless row, the same for ever."""
    return _uniform_at(key, np.arange(start, start + count, dtype=np.int64))


def _uniform_at(key: int, positions: Ints) -> NDArray[np.float64]:
    drawn: NDArray[np.float64] = (_noise(key, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def _noise(key: int, positions: Ints | Uint64s) -> Uint64s:
    """64 random bits for each position: the splitmix64 sequence that starts at `key`, by random access."""
    mixed = positions.astype(np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64(key)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@lru_cache(maxsize=8)
def _table(length: int, key: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """A permutation of [0, length), length < TABLE, and its inverse."""
    there = _sorted_noise(derive(key, "table"), np.zeros(1, dtype=np.int64), length, length)[0]
    back = np.empty_like(there)
    back[there] = np.arange(length, dtype=np.uint16)
    return there, back


def _sorted_noise(key: int, starts: Ints, row: int, length: int) -> NDArray[np.uint16]:
    """For each row of positions that begins at one of `starts`: a permutation of [0, row), row < TABLE.

    Sorting random numbers sorts their owners into a uniform permutation. The owner's offset is the low 16 bits of the
    number itself, so equal numbers (in one of 2**17 of the largest tables) still sort the same way everywhere.
    Positions from `length` on stay last: a short row permutes only what it has.
    """
    offsets = np.arange(row, dtype=np.uint64)
    high = np.uint64(0xFFFF_FFFF_FFFF_0000)
    positions = starts.astype(np.uint64)[:, None] + offsets  # shape: (rows, row)
    noise = (_noise(key, positions) & high) | offsets
    noise[positions >= np.uint64(length)] |= high
    noise.sort(axis=1)
    return noise.astype(np.uint16)


def _check_length(length: int) -> None:
    if not 0 <= length <= 1 << 63:
        raise BadOption(f"length={length}: an order has between 0 and 2**63 positions")


def _checked(positions: Ints, length: int) -> Ints:
    positions = np.asarray(positions, dtype=np.int64)
    if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= length):
        raise IndexError(f"a position is outside [0, {length})")
    return positions
