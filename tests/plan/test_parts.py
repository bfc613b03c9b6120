"""The order of parts: a permutation with random access, in which ranks read their own units only."""

from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.parts import Parts, factors, reversed_digits

sizes = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def order(units: list[int], key: int = 5, **options: int) -> Parts:
    return Parts(np.cumsum(np.array(units, np.int64)), line=3, key=key, **options)


@given(sizes, st.integers(0, 2**64 - 1), st.sampled_from([1, 2, 5, 6, 12, 48]), st.integers(1, 9))
def test_every_row_comes_once(units: list[int], key: int, parts: int, lanes: int) -> None:
    made = order(units, key, parts=parts, lanes=lanes)
    rows = made(np.arange(made.length))
    assert sorted(rows.tolist()) == list(range(sum(units)))


@given(sizes, st.sampled_from([1, 6, 48]), st.integers(1, 5), st.data())
def test_any_place_can_be_looked_up_by_itself(units: list[int], parts: int, lanes: int, data: st.DataObject) -> None:
    made = order(units, parts=parts, lanes=lanes)
    if not made.length:
        return
    some = np.array(data.draw(st.lists(st.integers(0, made.length - 1), min_size=1, max_size=20)))
    assert made(some).tolist() == made(np.arange(made.length))[some].tolist()


def units_of(made: Parts, part: int) -> list[int]:
    """The units that the line has pieces of in a part."""
    line = made._laid()
    found: list[int] = np.unique(np.searchsorted(made.ends, line.rows[line.part_of == part], side="right")).tolist()
    return found


@given(sizes, st.sampled_from([6, 12, 48]))
def test_a_row_of_part_c_stands_at_a_position_with_that_remainder(units: list[int], parts: int) -> None:
    made = order(units, parts=parts)
    rows = made(np.arange(made.length))
    for part in range(made.count if made.length else 0):
        mine = np.unique(np.searchsorted(made.ends, rows[part :: made.count], side="right"))
        assert mine.tolist() == units_of(made, part)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 5, 32, 96])
def test_a_job_reads_its_data_once_where_ranks_divide_the_parts(ranks: int) -> None:
    made = order([50] * 960)
    rows = made(np.arange(made.length))
    read = sum(len(np.unique(rows[rank::ranks] // 50)) for rank in range(ranks))
    assert read / 960 == ranks / gcd(ranks, 48) == made.reads(ranks)


@pytest.mark.parametrize(
    ("units", "ranks", "most"),
    [(1000, 2, 1.005), (1000, 8, 1.01), (1000, 12, 1.04), (100, 2, 1.03), (100, 8, 1.11), (60, 16, 1.3)],
)
def test_units_that_a_cut_divides_are_few_because_the_parts_of_a_rank_are_neighbours(
    units: int, ranks: int, most: float
) -> None:
    assert 1.0 <= order([37] * units).reads(ranks) <= most


def test_digits_are_reversed_as_the_page_says() -> None:
    places = reversed_digits((2, 2, 2, 2, 3))
    assert sorted(places.tolist()) == list(range(48))
    assert places[:4].tolist() == [0, 24, 12, 36]
    assert places[16:48:16].tolist() == [1, 2]
    assert reversed_digits(()).tolist() == [0]


@given(st.integers(1, 5000))
def test_factors_multiply_to_the_number(number: int) -> None:
    found = factors(number)
    assert np.prod(found, dtype=np.int64) == number
    assert list(found) == sorted(found)
    assert all(factors(f) == (f,) for f in found)


def test_one_giant_unit_and_more_parts_than_rows() -> None:
    assert sorted(order([100_000])(np.arange(100_000)).tolist()) == list(range(100_000))
    small = order([0, 1, 0, 2, 0])
    assert small.count == 3
    assert sorted(small(np.arange(3)).tolist()) == [0, 1, 2]
    assert order([0, 0]).length == 0
    assert order([0])(np.arange(0)).tolist() == []
    assert order([0]).reads(4) == 1.0


def test_epochs_differ_and_keep_their_parts_where_the_line_stays() -> None:
    first, second = order([20] * 96, key=1), order([20] * 96, key=2)
    positions = np.arange(first.length)
    assert first(positions).tolist() != second(positions).tolist()
    assert all(units_of(first, part) == units_of(second, part) for part in range(48))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(BadOption, match="parts=0"):
        order([1], parts=0)


def test_the_order_is_frozen() -> None:
    """Snapshots store a position and rely on the row that comes there: these numbers must never change."""
    made = order([7, 0, 13, 5, 20, 11], parts=6, lanes=2)
    assert made(np.arange(12)).tolist() == [5, 35, 12, 43, 29, 53, 4, 39, 11, 45, 19, 20]
