"""CRC-32C (Castagnoli), the check sum of TFRecord files: by the package of that name where it is installed (the extra
`tfrecord`; a hundred times as fast, because processors have an instruction for it), else with nothing but numpy.

With numpy, short data goes byte by byte through a table. Long data is cut into equal lanes whose sums advance together,
one numpy operation per byte of a lane; then neighbouring lanes are joined pair by pair, each join a shift of the left
sum over as many zero bytes as the right lane is long. Lanes and their number are powers of two, so that few shifts are
ever needed.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

POLYNOMIAL = 0x82F63B78
LONG = 2048
"""From this size on, lanes are quicker."""
LANES = 4096
"""The most lanes."""
STEPS = 16
"""The fewest bytes of a lane."""


@cache
def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = (row >> 1) ^ (POLYNOMIAL if row & 1 else 0)
        rows.append(row)
    return tuple(rows)


def crc32c(data: bytes) -> int:
    """The check sum of some bytes."""
    return _implementation()(data)


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
    at = 0
    while len(data) - at >= LONG:
        size = 1 << (len(data) - at).bit_length() - 1  # the largest power of two that fits
        crc = _lanes(data[at : at + size], min(LANES, size // STEPS), crc)
        at += size
    table = _table()
    for byte in data[at:]:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def masked(crc: int) -> int:
    """The form in which TFRecord stores a check sum."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFF_FFFF


def _lanes(data: bytes, lanes: int, start: int) -> int:
    import numpy as np

    table = np.array(_table(), np.uint32)
    # (bytes of a lane, lanes): row i holds byte i of every lane, so that one row is one step of all lanes.
    columns = np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(lanes, -1).T)
    sums = np.zeros(lanes, np.uint32)
    sums[0] = start
    for row in columns:
        sums = (sums >> np.uint32(8)) ^ table[(sums ^ row) & np.uint32(0xFF)]
    width = len(columns)
    while len(sums) > 1:
        sums = _shifted(np, sums[0::2], width) ^ sums[1::2]
        width *= 2
    return int(sums[0])


def _shifted(np: Any, sums: Any, zeros: int) -> Any:
    """The sums after that many zero bytes."""
    tables = _shift_tables(zeros)
    out = np.zeros_like(sums)
    for byte in range(4):
        out ^= tables[byte][(sums >> np.uint32(8 * byte)) & np.uint32(0xFF)]
    return out


@cache
def _shift_tables(zeros: int) -> Any:
    """What each byte of a sum becomes after that many zero bytes; a shift is linear, so xor joins the four."""
    import numpy as np

    columns = [1 << bit for bit in range(32)]
    power = [_zero_byte(column) for column in columns]
    while zeros:
        if zeros & 1:
            columns = [_apply(power, column) for column in columns]
        power = [_apply(power, column) for column in power]
        zeros >>= 1
    rows = [[_apply(columns, value << 8 * byte) for value in range(256)] for byte in range(4)]
    return np.array(rows, np.uint32)


def _zero_byte(crc: int) -> int:
    return (crc >> 8) ^ _table()[crc & 0xFF]


def _apply(columns: list[int], vector: int) -> int:
    out = 0
    for column in columns:
        if not vector:
            break
        if vector & 1:
            out ^= column
        vector >>= 1
    return out
