"""Random values: functions that make one out of a generator of random numbers.

Hypothesis chooses types, verbs and forms, where a smaller case says more. It chooses the values only by a seed: value
by value it costs more than all that is tested.
"""

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

Value = Callable[[Random], Any]
Seeds = st.integers(0, 2**32 - 1).map(Random)


def among(*values: Any) -> Value:
    return lambda draw: draw.choice(values)


def either(*makers: Value) -> Value:
    return lambda draw: draw.choice(makers)(draw)


def changed(maker: Value, how: Callable[[Any], Any]) -> Value:
    return lambda draw: how(maker(draw))


def whole(low: int, high: int) -> Value:
    """Integers, often the first, the last or small ones."""
    odd = [n for n in (low, low + 1, -1, 0, 1, 2**24 + 1, 2**53 + 1, high - 1, high) if low <= n <= high]
    return either(among(*odd), lambda draw: draw.randint(low, high))


def floating(bits: int, nan: bool = True) -> Value:
    """Floats of so many bits: any, and often odd ones."""
    code = {16: "<e", 32: "<f", 64: "<d"}[bits]
    odd = [struct.unpack(code, struct.pack(code, n))[0] for n in (0.0, -0.0, 0.1, 1.0, -1.5, math.inf, -math.inf)]
    odd += [math.nan] if nan else []

    def make(draw: Random) -> float:
        found: float = struct.unpack(code, draw.randbytes(bits // 8))[0]
        return found if draw.random() < 0.5 and (nan or found == found) else draw.choice(odd)

    return make


LETTERS = "ab\0 é漢😀\n\u0301"


def _text(draw: Random) -> str:
    if draw.random() < 0.7:
        return "".join(draw.choices(LETTERS, k=draw.randint(0, 4)))
    return "".join(chr(n) for n in (draw.randint(1, 0x10FFFF) for _ in range(4)) if not 0xD800 <= n < 0xE000)


def octets(least: int, most: int) -> Value:
    return lambda draw: draw.choice([draw.randbytes, bytes])(draw.randint(least, most))


def many(maker: Value, least: int, most: int) -> Value:
    return lambda draw: [maker(draw) for _ in range(draw.randint(least, most))]


def decimals(low: int, high: int) -> Value:
    return changed(whole(low, high), lambda n: Decimal(n).scaleb(-2))


EPOCH = dt.datetime(1970, 1, 1)
BITS = among(True, False)
NONE = among(None)
TEXT: Value = _text
MOMENTS = changed(
    either(whole(-(70 * 365), 230 * 365), lambda draw: draw.uniform(-(70 * 365), 230 * 365)),
    lambda days: EPOCH + dt.timedelta(days),
)
"""From 1900 to 2200, to the microsecond."""
DATES = changed(MOMENTS, dt.datetime.date)
TIMES = changed(MOMENTS, dt.datetime.time)
