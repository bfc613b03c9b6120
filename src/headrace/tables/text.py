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
Buffer = NDArray[np.uint8] | None


class DepartingText:
    """An Arrow array that arrives as an array of str or bytes; `listed`: as a list of them."""

    __slots__ = ("_array", "_listed")

    def __init__(self, array: Any, listed: bool) -> None:
        self._array = array
        self._listed = listed

    @staticmethod
    def fits(array: Any) -> bool:
        if not is_text(array.type) or array.offset:
            return False
        letters = array.buffers()[2]
        if letters is None or letters.size < LEAST:
            return False
        try:
            array.validate(full=True)
        except package("pyarrow").ArrowInvalid:
            return False  # what is not UTF-8 is an error where it was read, not where it arrives
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        array, rows, width = self._array, len(self._array), width_of(self._array.type)
        valid, offsets, letters = array.buffers()
        # Cut, because a slice of a column holds all of its memory.
        ends = np.frombuffer(offsets, f"i{width}", rows + 1)
        parts = [
            None if valid is None else np.frombuffer(valid, np.uint8, -(-rows // 8)),
            ends.view(np.uint8),
            np.frombuffer(letters, np.uint8, ends[-1]),
        ]
        return _arrived, (str(array.type), rows, parts, self._listed)


def _arrived(kind: str, length: int, buffers: list[Buffer], listed: bool) -> NDArray[Any] | list[Any]:
    """Pickle calls this by name: the strings."""
    pa = package("pyarrow")
    parts = [None if part is None else pa.py_buffer(part) for part in buffers]
    array = pa.Array.from_buffers(pa.type_for_alias(kind), length, parts)
    found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found.tolist() if listed else found
