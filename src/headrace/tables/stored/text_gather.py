"""Text gathered from anywhere in one memory: the bytes of many texts, joined, and the offsets that Arrow keeps.

Python needs longer to make a slice for each text than to copy it. Arrow has a type of column that says for each text
where it lies (`binary_view`), and converts it to plain text in one loop of its own. Where pyarrow is too old for that,
slices are joined.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.column import Ints
from headrace.tables.packages import pa, pc

LONGEST = 2**31 - 1
"""Bytes that offsets of 32 bits can count."""
STEP = 2**30
"""A view counts from the start of a buffer, in 32 bits. The memory is given as buffers that overlap: one begins every
so many bytes, and reaches to the end of the next."""
INLINE = 12
"""Text up to this length stands in the view itself."""


class TextGather:
    """Gathers text from `memory`. `width`: bytes of an offset in the result."""

    def __init__(self, memory: memoryview, width: int) -> None:
        self._memory = memory
        self._offset = np.dtype(f"i{width}")
        self._short = np.ndarray((max(0, len(memory) - INLINE + 1),), f"V{INLINE}", memory, strides=(1,))
        self._buffers: list[Any] = []

    def __call__(self, starts: Ints, sizes: NDArray[Any]) -> tuple[Any, Any] | None:
        """Offsets and bytes of the texts that begin there; None if they are too long for these offsets."""
        total = int(sizes.sum(dtype=np.int64))
        if self._offset.itemsize == 4 and total > LONGEST:
            return None
        if total and sees_views():
            views = self._views(starts, sizes)
            if views is not None:
                return self._plain(views)
        return self._sliced(starts, sizes)

    def _views(self, starts: Ints, sizes: NDArray[Any]) -> NDArray[Any] | None:
        """What Arrow calls views: length, prefix (only for comparisons: left empty), buffer, place in the buffer.

        None if a text is too long, or too near to the end of the memory, for this.
        """
        if sizes.max() > LONGEST - STEP:
            return None
        views = views_of(starts, sizes)
        if sizes.min() <= INLINE:
            short = np.flatnonzero(sizes <= INLINE)
            begin = starts[short]
            begin[sizes[short] == 0] = 0  # an empty text may have no place at all
            if begin.max() >= len(self._short):
                return None
            views.view(np.int32)[short, 1:] = self._short[begin].view(np.int32).reshape(-1, 3)
        return views

    def _plain(self, views: NDArray[Any]) -> tuple[Any, Any]:
        if not self._buffers:
            memory = self._memory
            self._buffers = [pa.py_buffer(memory[at : at + LONGEST]) for at in range(0, len(memory), STEP)]
        lying = pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), *self._buffers])
        _, offsets, letters = plain(lying, self._offset.itemsize).buffers()
        return offsets, letters

    def _sliced(self, starts: Ints, sizes: NDArray[Any]) -> tuple[Any, Any]:
        memory = self._memory
        ends = np.zeros(len(sizes) + 1, self._offset)
        np.cumsum(sizes, out=ends[1:])
        # Slices of a view are not copied before they are joined.
        spans = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        return pa.py_buffer(ends), pa.py_buffer(b"".join([memory[start:stop] for start, stop in spans]))


def views_of(starts: Ints, sizes: NDArray[Any]) -> NDArray[Any]:
    """Views of long text, as pairs of numbers. (On a big-endian machine they are wrong, and `sees_views` is False.)"""
    views = np.empty((len(sizes), 2), np.int64)
    views[:, 0] = sizes
    views[:, 1] = (starts & (STEP - 1)) << 32
    if len(starts) and starts.max() >= STEP:
        views[:, 1] |= starts // STEP
    return views


def plain(lying: Any, width: int) -> Any:
    """Views as text with offsets of so many bytes."""
    function, options = _cast(width)
    return function.call([lying], options)


@cache
def _cast(width: int) -> tuple[Any, Any]:
    """Looked up once, as every batch needs it."""
    return pc.get_function("cast"), pc.CastOptions.safe(pa.binary() if width == 4 else pa.large_binary())


@cache
def sees_views() -> bool:
    """Whether this pyarrow makes plain text of views: versions before 18 or so have the type and little more."""
    try:
        view = views_of(np.array([1]), np.array([13]))
        lying = pa.Array.from_buffers(pa.binary_view(), 1, [None, *map(pa.py_buffer, (view, b"-one that is far-"))])
        return bool(plain(lying, 4)[0].as_py() == b"one that is f")
    except (AttributeError, ValueError, pa.ArrowException):
        return False
