"""Orders are permutations with random access, exact at every length."""

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.order import ROW, TABLE, Ints, Shuffled, Weighted, Windowed
from tests.plan.statistics import chi2

LENGTHS = [
    *range(301),
    *(2**power + step for power in range(9, 20) for step in (-1, 0, 1)),
    # Squares and products of neighbours are where the Feistel rectangle fits exactly, or just not.
    *(side * side + step for side in (256, 257, 300) for step in (-1, 0, 1, side)),
]


def everything(length: int) -> Ints:
    return np.arange(length, dtype=np.int64)


def ends(length: int, count: int = 2000) -> Ints:
    """Positions at both ends of a long order, and some between."""
    low = np.arange(count, dtype=np.int64)
    return np.unique(np.concatenate([low, length - 1 - low, low * (length // count)]))


@pytest.mark.parametrize("key", [0, 1, 2**64 - 1])
def test_shuffled_is_a_permutation_and_inverse_undoes_it(key: int) -> None:
    for length in LENGTHS:
        order, positions = Shuffled(length, key), everything(length)
        indices = order(positions)
        assert indices.dtype == np.int64
        assert np.array_equal(np.sort(indices), positions), length
        assert np.array_equal(order.inverse(indices), positions), length
        assert np.array_equal(order(order.inverse(positions)), positions), length


@given(st.integers(TABLE, 2**63), st.integers(0, 2**64 - 1))
def test_shuffled_is_exact_at_any_length(length: int, key: int) -> None:
    order, positions = Shuffled(length, key), ends(length)
    indices = order(positions)
    assert indices.min() >= 0
    assert int(indices.max()) < length
    assert len(np.unique(indices)) == len(positions)
    assert np.array_equal(order.inverse(indices), positions)


@pytest.mark.parametrize("window", [1, 2, 3, 10, 299, ROW, ROW + 1, TABLE - 1, TABLE, TABLE + 1, 10**30])
def test_windowed_permutes_inside_each_block(window: int) -> None:
    for length in (0, 1, 2, 9, 10, 11, 300, 2 * ROW + 5, 2 * TABLE + 3):
        positions = everything(length)
        indices = Windowed(length, window, 5)(positions)
        assert np.array_equal(np.sort(indices), positions)
        assert np.array_equal(indices // window if window < length else indices * 0, positions // min(window, 10**18))


def test_windows_differ_from_each_other() -> None:
    rows = Windowed(1000, 10, 1)(everything(1000)).reshape(100, 10) % 10
    assert len({tuple(row) for row in rows.tolist()}) > 95


def test_windowed_is_exact_at_the_far_end_of_a_huge_order() -> None:
    for window in (7, ROW, 50_000, 10**6):
        for length in (10**12 + 1, 2**63 - 1, 2**63):
            first = (length - 1) // window * window
            last_block = first + np.arange(min(length - first, 10**4), dtype=np.int64)
            indices = Windowed(length, window, 3)(last_block)
            assert len(np.unique(indices)) == len(last_block)
            assert int(indices.min()) >= first
            assert int(indices.max()) < length


@pytest.mark.parametrize(
    "order",
    [
        Shuffled(60_000, 1),
        Shuffled(10**6, 1),
        Windowed(10**6, 7, 1),
        Windowed(10**6, ROW, 1),
        Windowed(10**6, 20_000, 1),
        Windowed(10**6, 10**5, 1),
        Weighted([1.0, 2.0, 3.0], 10**6, 1),
    ],
)
def test_one_position_at_a_time_all_at_once_in_any_order_or_shape_is_the_same(order: Any) -> None:
    positions = np.arange(0, order.length, order.length // 300, dtype=np.int64)
    indices = order(positions)
    assert np.array_equal(order(positions[::-1])[::-1], indices)
    assert [int(order(positions[i : i + 1])[0]) for i in range(0, 300, 50)] == indices[:300:50].tolist()
    assert np.array_equal(order(positions[:300].reshape(3, 100)), indices[:300].reshape(3, 100))
    assert order(positions[:0]).shape == (0,)
    assert np.array_equal(pickle.loads(pickle.dumps(order))(positions), indices)


def test_the_positions_given_are_not_changed() -> None:
    for order in (Shuffled(100, 1), Shuffled(10**6, 1), Windowed(100, 7, 1), Weighted([1.0], 100, 1)):
        positions = np.arange(100, dtype=np.int64)
        order(positions)
        assert np.array_equal(positions, np.arange(100))


@pytest.mark.parametrize("make", [lambda n: Shuffled(n, 1), lambda n: Windowed(n, 4, 1)])
def test_positions_outside_are_refused(make: Any) -> None:
    for length in (10, 10**6):
        for position in (-1, length):
            with pytest.raises(IndexError, match="outside"):
                make(length)(np.array([0, position]))


def test_another_key_is_another_order() -> None:
    for length in (1000, 10**6):
        positions = np.arange(1000, dtype=np.int64)
        orders = [Shuffled(length, key)(positions) for key in (0, 1, 2**63, 2**64, -1)]
        same = [int((a == b).sum()) for i, a in enumerate(orders) for b in orders[:i]]
        # Two random orders agree at one position on average; 12 or more has probability below 1e-9.
        assert max(same) < 12


def test_memory_does_not_grow_with_the_length() -> None:
    def peak(order: Any) -> int:
        positions = order.length - 1 - np.arange(4096, dtype=np.int64)
        order(positions)  # what is cached per process is not counted
        tracemalloc.start()
        try:
            order(positions)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for make in (lambda n: Shuffled(n, 1), lambda n: Windowed(n, 1000, 1), lambda n: Weighted([1.0, 1.0], n, 1)):
        assert peak(make(10**15)) < 1.1 * peak(make(10**6)) + 4096


@pytest.mark.deep
def test_scattered_positions_in_a_windowed_order_do_not_take_a_window_of_memory_each() -> None:
    positions = np.arange(20_000, dtype=np.int64) * ROW
    tracemalloc.start()
    try:
        Windowed(10**9, ROW, 1)(positions)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_weighted_draws_in_proportion_and_never_what_weighs_nothing() -> None:
    weights = np.array([0.0, 1.0, 5.0, 0.0, 2.0, 0.5, 0.0])
    count = 200_000
    drawn = np.bincount(Weighted(weights, count, 11)(everything(count)), minlength=len(weights))
    assert drawn[weights == 0].sum() == 0
    chosen = weights > 0
    # 5 standard deviations: a false alarm in about 3e-7 of all keys.
    assert abs(chi2(drawn[chosen], weights[chosen] / weights.sum() * count)) < 5


@pytest.mark.parametrize(
    "weights", [[], [0.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [float("inf")], [[1.0]], [1e308, 1e308]]
)
def test_weights_that_are_no_distribution_are_refused(weights: Any) -> None:
    with np.errstate(over="ignore"), pytest.raises(BadOption, match="weights"):
        Weighted(weights, 10, 1)


def test_impossible_lengths_and_windows_are_refused() -> None:
    for length in (-1, 2**63 + 1):
        with pytest.raises(BadOption, match="between 0 and"):
            Shuffled(length, 1)
    with pytest.raises(BadOption, match="at least 1"):
        Windowed(10, 0, 1)
