"""A shuffled order cannot be told from a uniform random permutation by the tests that matter to training.

Every statistic is turned into standard deviations, and a test fails beyond 5. For a truly uniform permutation that
happens with probability 6e-7 (1e-5 for the few counts that are skewed). Keys are fixed, so what passes once passes
always; when the arithmetic is changed on purpose, the hundred statistics here raise a false alarm once in 5000 times.
The same statistics are taken of numpy's own permutations (they must pass) and of bad orders (they must fail).
"""

from collections.abc import Callable
from itertools import permutations
from math import factorial, sqrt

import numpy as np
import pytest

from headrace.plan import order
from headrace.plan.order import Ints, Shuffled, Windowed
from headrace.plan.seed import generator
from tests.depth import depth
from tests.plan.statistics import chi2

LIMIT = 5.0
BATCH = 64

Subject = Callable[[int, int], Ints]


def ours(length: int, key: int) -> Ints:
    return Shuffled(length, key)(np.arange(length, dtype=np.int64))


def in_a_window(length: int, key: int) -> Ints:
    """The second block of a windowed order, brought back to [0, length)."""
    return Windowed(3 * length, length, key)(np.arange(length, 2 * length, dtype=np.int64)) - length


def numpys(length: int, key: int) -> Ints:
    return generator(key).permutation(length)


def affine(length: int, key: int) -> Ints:
    """The textbook shuffle that is not one: multiply, add, take the remainder."""
    return (np.arange(length, dtype=np.int64) * 7919 + key * 104_729) % length


def place(subject: Subject, length: int, keys: int) -> float:
    """Where each part of the order goes: position against index, on a grid, averaged over keys."""
    cells = min(16, length)
    grid = np.zeros((cells, cells))
    for key in range(keys):
        positions = np.arange(length) * cells // length
        np.add.at(grid, (positions, subject(length, key) * cells // length), 1)
    sides = np.bincount(np.arange(length) * cells // length)
    expected = np.outer(sides, sides) / length * keys
    # A permutation's rows and columns are fixed: (cells - 1)**2 free counts, and a variance larger by n / (n - 1).
    shrink = sqrt((length - 1) / length)
    return chi2(expected + (grid - expected) * shrink, expected, (cells - 1) ** 2)


def neighbour(subject: Subject, length: int, keys: int) -> float:
    """How far apart (around the circle) the indices at neighbouring positions are: uniform over 1 .. length - 1."""
    cells = min(64, length - 1)
    counts = np.zeros(cells)
    for key in range(keys):
        indices = subject(length, key)
        apart = (indices[1:] - indices[:-1]) % length
        counts += np.bincount((apart - 1) * cells // (length - 1), minlength=cells)
    sides = np.bincount(np.arange(length - 1) * cells // (length - 1), minlength=cells)
    return chi2(counts, sides / (length - 1) * keys * (length - 1))


def fixed(subject: Subject, length: int, keys: int) -> float:
    """How many indices stay in place: one an order on average, with variance one."""
    stays = sum(int((subject(length, key) == np.arange(length)).sum()) for key in range(keys))
    return (stays - keys) / sqrt(keys)


def batches(subject: Subject, length: int, keys: int) -> float:
    """How mixed batches are: the squared surplus of indices from the lower half has a known (hypergeometric) mean."""
    low, per_order = length // 2, length // BATCH
    share = low / length
    variance = BATCH * share * (1 - share) * (length - BATCH) / (length - 1)
    squares = []
    for key in range(keys):
        lower = (subject(length, key)[: per_order * BATCH].reshape(per_order, BATCH) < low).sum(axis=1)
        squares.append(float(((lower - BATCH * share) ** 2 / variance).mean()))
    # The square of a nearly normal number has variance 2; batches of one order are nearly independent.
    return (float(np.mean(squares)) - 1) / sqrt(2 / (keys * per_order))


STATISTICS = [place, neighbour, fixed, batches]


def keys_for(length: int) -> int:
    return max(depth(20, 200), depth(50_000, 1_000_000) // length)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("length", [1000, 4000, 65_535, 65_536, 65_537, 100_000])
def test_shuffled_orders_look_uniform(statistic: Callable[[Subject, int, int], float], length: int) -> None:
    assert abs(statistic(ours, length, keys_for(length))) < LIMIT


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("length", [1000, 70_000])
def test_blocks_of_windowed_orders_look_uniform(statistic: Callable[[Subject, int, int], float], length: int) -> None:
    assert abs(statistic(in_a_window, length, keys_for(length))) < LIMIT


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("length", [1000, 65_536])
def test_numpys_permutations_pass_the_same_tests(statistic: Callable[[Subject, int, int], float], length: int) -> None:
    assert abs(statistic(numpys, length, keys_for(length))) < LIMIT


@pytest.mark.parametrize("statistic", [place, neighbour, batches])
def test_an_affine_order_is_caught(statistic: Callable[[Subject, int, int], float]) -> None:
    assert abs(statistic(affine, 65_537, 20)) > 2 * LIMIT


def test_a_network_of_two_rounds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "ROUNDS", 2)
    order._rounds_of.cache_clear()
    try:
        assert max(abs(statistic(ours, 65_536, 20)) for statistic in STATISTICS) > 2 * LIMIT
    finally:
        order._rounds_of.cache_clear()


@pytest.mark.parametrize("subject", [ours, in_a_window, numpys])
@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_every_permutation_of_a_tiny_set_is_equally_likely(subject: Subject, length: int) -> None:
    number = {permutation: i for i, permutation in enumerate(permutations(range(length)))}
    keys = depth(6_000, 100_000)
    counts = np.zeros(factorial(length))
    for key in range(keys):
        counts[number[tuple(subject(length, key).tolist())]] += 1
    assert abs(chi2(counts, keys / factorial(length))) < LIMIT


@pytest.mark.parametrize("length", [1, 6, 7, 8, 15, 16, 17, 100])
def test_every_index_is_equally_likely_at_every_position_of_a_small_set(length: int) -> None:
    keys = depth(3_000, 30_000)
    counts = np.zeros((length, length))
    for key in range(keys):
        counts[np.arange(length), ours(length, key)] += 1
    if length == 1:
        assert counts[0, 0] == keys
        return
    # As in `place`: the counts of a permutation vary more by n / (n - 1) than independent ones.
    mean = keys / length
    spread = mean + (counts - mean) * sqrt((length - 1) / length)
    assert abs(chi2(spread, mean, (length - 1) ** 2)) < LIMIT


@pytest.mark.parametrize("length", [1000, 65_536, 10**12, 2**63])
def test_orders_of_neighbouring_keys_are_unrelated(length: int) -> None:
    positions = np.arange(min(length, 50_000), dtype=np.int64)
    cells = 16
    grid = np.zeros((cells, cells))
    keys = 20
    for key in range(keys):
        one, other = (Shuffled(length, k)(positions) // (-(-length // cells)) for k in (key, key + 1))
        np.add.at(grid, (one, other), 1)
    rows, columns = grid.sum(axis=1), grid.sum(axis=0)
    assert abs(chi2(grid, np.outer(rows, columns) / grid.sum(), (cells - 1) ** 2)) < LIMIT


@pytest.mark.parametrize("length", [10**6 + 3, 10**12, 2**40 + 1, 2**63])
def test_huge_orders_spread_neighbours_over_the_whole(length: int) -> None:
    positions = length // 3 + np.arange(100_000, dtype=np.int64)
    indices = Shuffled(length, 17)(positions)
    cell = -(-length // 100)
    expected = np.diff([min(i * cell, length) for i in range(101)]).astype(np.float64) / length * len(positions)
    assert abs(chi2(np.bincount(indices // cell, minlength=100), expected)) < LIMIT
    apart = (indices[1:].astype(np.uint64) - indices[:-1].astype(np.uint64)).view(np.int64)
    around = np.where(apart < 0, apart + length, apart) if length < 2**62 else apart & (2**63 - 1)
    assert abs(chi2(np.bincount(around // cell, minlength=100), expected)) < LIMIT
