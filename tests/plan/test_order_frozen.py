"""The order of a (length, key) never changes.

A snapshot stores a seed and a position, not the order. If one of these numbers changed, every snapshot that users hold
would silently deliver some samples twice and others never. So this test is not to be updated: a better arithmetic is a
new order class beside the old one, and a new version of the snapshot.
"""

from typing import Any

import numpy as np
import pytest

from headrace.plan.order import Shuffled, Weighted, Windowed
from headrace.plan.seed import key


@pytest.mark.parametrize(
    ("parts", "frozen"),
    [
        ((), 0xB4B2797457A0A6E4),
        ((0,), 0x6B9F2DCF9F0F05AC),
        ((42, 0, "map", 7), 0x51539F8873904CB0),
        ((-1, 2**64, b"\x00", "é"), 0x96098FB8D9CB0DAF),
    ],
)
def test_keys_are_frozen(parts: tuple[Any, ...], frozen: int) -> None:
    assert key(*parts) == frozen


# Both sides of every change of method: table and Feistel network, rows and single blocks; odd lengths; both ends.
@pytest.mark.parametrize(
    ("order", "frozen"),
    [
        (Shuffled(10, 0), [3, 7, 8, 2, 4]),
        (Shuffled(10, 1), [7, 3, 6, 4, 1]),
        (Shuffled(65_535, 7), [25290, 22186, 10057, 61631, 55512]),
        (Shuffled(65_536, 7), [638, 40455, 16268, 40837, 16464]),
        (Shuffled(1_000_003, 2**64 - 1), [655892, 661407, 781747, 847298, 616373]),
        (Shuffled(10**12, 7), [795526506134, 334739803269, 530083123006, 365190665588, 683015254322]),
        (
            Shuffled(2**63, 7),
            [1779629328159072945, 6367477314201123309, 130067535464122675, 8333901486939940339, 5496530091515041476],
        ),
        (Windowed(10, 4, 7), [0, 3, 2, 5, 8]),
        (Windowed(10**9, 1000, 7), [605, 58, 932, 500000206, 999999561]),
        (Windowed(10**9, 4096, 7), [3958, 2073, 2121, 499999542, 999997646]),
        (Windowed(10**9, 4097, 7), [1690, 3100, 2074, 499999916, 999999878]),
        (Windowed(10**9, 65_536, 7), [6536, 8092, 51452, 500031191, 999977081]),
        (Weighted([1.0, 2.0, 0.5, 3.0], 10**9, 7), [1, 0, 1, 3, 1]),
    ],
    ids=repr,
)
def test_orders_are_frozen(order: Any, frozen: list[int]) -> None:
    positions = [0, 1, 2, order.length // 2, order.length - 1]
    assert order(np.array(positions, dtype=np.int64)).tolist() == frozen
