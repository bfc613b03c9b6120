"""CRC-32C (Castagnoli), the check sum of TFRecord files, by the package `crc32c` (extra `tfrecord`) or `google-crc32c`.

Without either nothing is read: a check sum that cannot be verified is an error, not a check sum that is right.
"""

import importlib
from collections.abc import Callable
from functools import cache

from headrace.errors import missing

PACKAGES = {"crc32c": "crc32c", "google_crc32c": "value"}
"""Modules, and what the function is called in each."""


@cache
def crc32c() -> Callable[[bytes], int]:
    """The function that makes the check sum of some bytes; raises MissingExtra if no package has it."""
    for module, name in PACKAGES.items():
        try:
            found: Callable[[bytes], int] = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue
        return found
    raise missing("tfrecord", "crc32c")


def stored_crc(data: bytes) -> bytes:
    """The check sum of some bytes, in the 4 bytes that TFRecord stores behind them."""
    crc = crc32c()(data)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFF_FFFF).to_bytes(4, "little")
