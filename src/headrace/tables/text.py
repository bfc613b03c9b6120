"""Text: a column of strings on its way to the consumer, as the bytes and offsets that Arrow keeps.

Strings that a worker makes only for pickle to take them apart again cost more than all else in a batch of text. Where
nothing follows in the worker that could look at them, they are made once, by the consumer.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.arrow import is_text, width_of
from headrace.tables.packages import package

LEAST = 2048
"""Bytes of a column: pickle is as fast for less."""


class DepartingText:
    """An Arrow array that arrives as an array of str or bytes; `listed`: as a list of them."""

    __slots__ = ("_array", "_listed")

    def __init__(self, array: Any, listed: bool) -> None:
        self._array = array
        self._listed = listed

    @staticmethod
    def fits(array: Any, sound: bool = False) -> bool:
        """Whether it can travel so; `sound`: that it is valid is known."""
        if not is_text(array.type) or array.offset:
            return False
        letters = array.buffers()[2]
        if letters is None or letters.size < LEAST:
            return False
        return sound or is_sound(array)  # what is not UTF-8 is an error where it was read, not where it arrives

    def __reduce__(self) -> tuple[Any, ...]:
        array, rows, width = self._array, len(self._array), width_of(self._array.type)
        valid, offsets, letters = array.buffers()
        (end,) = np.frombuffer(offsets, f"i{width}", 1, rows * width).tolist()
        # Cut, because a slice of a column holds all of its memory. (Not as numpy arrays: their heads cost more.)
        parts = [
            None if valid is None else valid.slice(0, -(-rows // 8)),
            offsets.slice(0, (rows + 1) * width),
            letters.slice(0, end),
        ]
        return _arrived, (str(array.type), rows, parts, self._listed)


def is_sound(array: Any) -> bool:
    """Whether offsets and letters are what they should be: those of text, UTF-8."""
    try:
        array.validate(full=True)
    except package("pyarrow").ArrowInvalid:
        return False
    return True


def _arrived(kind: str, length: int, buffers: list[Any], listed: bool) -> NDArray[Any] | list[Any]:
    """Pickle calls this by name: the strings."""
    pa = package("pyarrow")
    array = pa.Array.from_buffers(pa.type_for_alias(kind), length, buffers)
    found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found.tolist() if listed else found
