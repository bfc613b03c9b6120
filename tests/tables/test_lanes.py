"""The order of lanes: a permutation of everything, by random access, with few units open at a time."""

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.lanes import Lanes

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def ends(sizes: list[int]) -> Any:
    return np.cumsum(np.array(sizes, np.int64))


@given(SIZES, st.integers(1, 50), st.integers(0, 2**64 - 1))
def test_every_row_comes_once(sizes: list[int], lanes: int, key: int) -> None:
    order = Lanes(ends(sizes), lanes, key)
    assert sorted(order(np.arange(order.length)).tolist()) == list(range(sum(sizes)))


@given(SIZES, st.integers(1, 50), st.data())
def test_any_position_can_be_asked_for_by_itself(sizes: list[int], lanes: int, data: st.DataObject) -> None:
    order = Lanes(ends(sizes), lanes, 7)
    whole = order(np.arange(order.length))
    wanted = np.array(data.draw(st.lists(st.integers(0, order.length - 1), max_size=20)), np.int64)
    np.testing.assert_array_equal(order(wanted), whole[wanted])


@pytest.mark.parametrize("lanes", [1, 3, 10])
def test_few_units_stand_open_and_each_is_opened_about_once(lanes: int) -> None:
    order = Lanes(ends([500] * 100), lanes, 5)
    units = order(np.arange(order.length)) // 500
    opened = [set(units[at : at + 100].tolist()) for at in range(0, len(units), 100)]
    # Where one unit follows another, both are met: never more than two a lane.
    assert max(map(len, opened)) <= 2 * lanes
    held: list[int] = []
    reads = 0
    for at in range(0, len(units), 100):
        met = list(dict.fromkeys(units[at : at + 100].tolist()))
        held = [u for u in held if u not in met] + [u for u in held if u in met]
        for unit in met:
            if unit not in held:
                reads += 1
                held = [*held, unit][-max(2, lanes * 5 // 4) :]
    assert reads <= 100 + 2 * lanes


def test_another_key_is_another_order_and_the_rows_of_a_unit_are_mixed() -> None:
    sizes = ends([1000] * 20)
    one, two = (Lanes(sizes, 4, key)(np.arange(20_000)) for key in (1, 2))
    assert (one == two).mean() < 0.01
    inside = one[one // 1000 == one[0] // 1000]
    assert abs(np.corrcoef(inside[:-1], inside[1:])[0, 1]) < 0.1


def test_rows_come_in_every_place_alike() -> None:
    # Over many keys, where row 0 of a unit comes is spread evenly: a chi-square test against ten equal parts.
    counts = np.zeros(10)
    for key in range(400):
        order = Lanes(ends([30] * 20), 5, key)
        where = int(np.flatnonzero(order(np.arange(600)) == 0)[0])
        counts[where * 10 // 600] += 1
    assert ((counts - 40) ** 2 / 40).sum() < 28  # 0.1 % of fair ones are above


def test_this_order_never_changes() -> None:
    # Snapshots hold a position: what comes there must be the same in every version.
    order = Lanes(ends([1000, 17, 3000, 1, 512]), 3, 12345)
    found = order(np.arange(order.length)).astype("<i8").tobytes()
    assert hashlib.blake2b(found, digest_size=8).hexdigest() == "d1bbe37fbc80356c"


def test_no_lane_is_an_error() -> None:
    with pytest.raises(BadOption, match=r"lanes=0"):
        Lanes(ends([3]), 0, 1)
    with pytest.raises(IndexError):
        Lanes(ends([3]), 1, 1)(np.array([3]))
