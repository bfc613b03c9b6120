"""CRC-32C (Castagnoli), the check sum of TFRecord files: by the package of that name where it is installed (the extra
`tfrecord`; a hundred times as fast, because processors have an instruction for it), else with nothing but numpy.

With numpy, short data goes byte by byte through a table. Long data is cut into blocks. A check sum is linear: that of a
block is the xor of one number for each byte, which depends only on the byte and its place in the block, and the check
sum of all earlier blocks counts as if xored into the first four bytes.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

POLYNOMIAL = 0x82F63B78
LONG = 256
"""From this size on, blocks are quicker."""
BLOCK = 512


def crc32c(data: bytes) -> int:
    """The check sum of some bytes."""
    return _implementation()(data)


def stored_crc(data: bytes) -> bytes:
    """The check sum of some bytes, in the 4 bytes that TFRecord stores behind them."""
    crc = crc32c(data)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFF_FFFF).to_bytes(4, "little")


@cache
def _implementation() -> Callable[[bytes], int]:
    try:
        package: Any = importlib.import_module("crc32c")
    except ImportError:
        return by_numpy
    found: Callable[[bytes], int] = package.crc32c
    return found


def by_numpy(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    if len(data) >= LONG:
        return _by_blocks(data, crc) ^ 0xFFFF_FFFF
    table = _table()
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


@cache
def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = (row >> 1) ^ (POLYNOMIAL if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


def _by_blocks(data: bytes, crc: int) -> int:
    import numpy as np

    places = _places()
    # (Zeros in front of everything add nothing.)
    whole = np.zeros(-(-len(data) // BLOCK) * BLOCK, np.uint8)
    whole[-len(data) :] = np.frombuffer(data, np.uint8)
    whole[-len(data) :][:4] ^= np.frombuffer(crc.to_bytes(4, "little"), np.uint8)
    sums = np.bitwise_xor.reduce(places[np.arange(BLOCK), whole.reshape(-1, BLOCK)], axis=1)
    front = places[:4].tolist()
    found = 0
    for block in sums.tolist():
        for row in front:
            block ^= row[found & 0xFF]
            found >>= 8
        found = block
    return found


@cache
def _places() -> Any:
    """What each byte (second axis) adds at each place of a block (first axis)."""
    import numpy as np

    table = np.array(_table(), np.uint32)
    rows = [table]
    while len(rows) < BLOCK:
        rows.append((rows[-1] >> np.uint32(8)) ^ table[rows[-1] & np.uint32(0xFF)])
    return np.array(rows[::-1])
