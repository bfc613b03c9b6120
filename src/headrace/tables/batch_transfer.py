"""How a batch of columns is pickled in a worker, so that it arrives at the consumer as a plain dict of arrays.

A hundred arrays cost a hundred pickled headers in the worker and as many views in the consumer. Columns of one dtype
lie in one block already (see `gather`): the block is sent, and the consumer cuts it.

Strings that a worker makes only for pickle to take them apart again cost more than all else in a batch of text. Where
no op follows in the worker, text is sent as the bytes and offsets that Arrow keeps, and the consumer makes the strings.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.op import place
from headrace.tables.convert.arrow_types import is_text, offset_size
from headrace.tables.packages import pa, torch

LEAST = 2048
"""Bytes of a column of text: pickle is as fast for less."""
Blocks = Sequence[tuple[tuple[str, ...], NDArray[Any]]]


class BlockColumns(dict[str, Any]):
    """In a worker, a dict of arrays that knows in which blocks they lie."""

    __slots__ = ("blocks", "cut", "form")
    form: str
    blocks: Blocks
    cut: dict[str, Any]

    @staticmethod
    def of(form: str, arrays: dict[str, Any], blocks: Blocks) -> dict[str, Any]:
        """The arrays; in a worker that will send them, with their blocks."""
        if place.allocate is None:
            return arrays
        made = BlockColumns(arrays)
        made.form, made.blocks, made.cut = form, blocks, arrays
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # The user may have changed the dict since: what is not the array that was cut from a block is sent by itself.
        whole = [(names, block) for names, block in self.blocks if self._has_all(names)]
        blocked = {name for names, _ in whole for name in names}
        rest = {name: _picklable(value) for name, value in self.items() if name not in blocked}
        return _rebuild, (self.form, tuple(self), whole, rest)

    def _has_all(self, names: tuple[str, ...]) -> bool:
        """Whether each of these is still the array that was cut. (No loop in Python: there may be hundreds.)"""
        return all(map(is_, map(self.get, names), map(self.cut.get, names, repeat(_GONE))))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()


_GONE = object()


def _rebuild(form: str, names: tuple[str, ...], blocks: Blocks, rest: dict[str, Any]) -> dict[str, Any]:
    """Pickle calls this by name: the dict again, its arrays cut from the blocks."""
    found: dict[str, Any] = {}
    for members, block in blocks:
        found |= zip(members, _cut(form, block), strict=True)
    if not rest and len(blocks) == 1 and blocks[0][0] == names:
        return found
    found |= rest
    return {name: found[name] for name in names}


def _cut(form: str, block: NDArray[Any]) -> Any:
    return tensors(block) if form == "torch" and in_torch(block.dtype) else block


def tensors(block: NDArray[Any]) -> Any:
    """The rows of a block as tensors. (Not by `unbind`: autograd lets nobody change what that gives in place.)"""
    return torch.unsafe_split(torch.from_numpy(block.reshape(-1)), block.shape[1])


def in_torch(dtype: "np.dtype[Any]") -> bool:
    """Whether torch has this dtype: numbers and truth values in this machine's byte order, no long doubles."""
    return dtype.kind in "biufc" and dtype.isnative and dtype.char not in "gG"


class _Masked:
    """A masked array that is sent: pickle would copy values and mask into the header of the message."""

    __slots__ = ("mask", "values")

    def __init__(self, values: NDArray[Any], mask: NDArray[np.bool_]) -> None:
        self.values = values
        self.mask = mask

    def __reduce__(self) -> tuple[Any, ...]:
        return np.ma.MaskedArray, (self.values, self.mask)


def _picklable(value: object) -> Any:
    if isinstance(value, np.ma.MaskedArray) and not value.dtype.hasobject:
        return _Masked(value.data, np.ma.getmaskarray(value))
    return value


class DepartingText:
    """An Arrow array that arrives as an array of str or bytes; `listed`: as a list of them."""

    __slots__ = ("_array", "_listed")

    def __init__(self, array: Any, listed: bool) -> None:
        self._array = array
        self._listed = listed

    @staticmethod
    def fits(array: Any, sound: bool = False) -> bool:
        """Whether it can be sent so; `sound`: it is known to be valid."""
        if not is_text(array.type) or array.offset:
            return False
        letters = array.buffers()[2]
        if letters is None or letters.size < LEAST:
            return False
        return sound or is_sound(array)  # what is not UTF-8 is an error where it was read, not where it arrives

    def __reduce__(self) -> tuple[Any, ...]:
        array, rows, width = self._array, len(self._array), offset_size(self._array.type)
        valid, offsets, letters = array.buffers()
        (end,) = np.frombuffer(offsets, f"i{width}", 1, rows * width).tolist()
        # Cut, because a slice of a column holds all of its memory. (Not as numpy arrays: their headers cost more.)
        parts = [
            None if valid is None else valid.slice(0, -(-rows // 8)),
            offsets.slice(0, (rows + 1) * width),
            letters.slice(0, end),
        ]
        return _rebuild_text, (str(array.type), rows, parts, self._listed)


def is_sound(array: Any) -> bool:
    """Whether offsets and letters are what they should be: those of text, UTF-8."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _rebuild_text(kind: str, length: int, buffers: list[Any], listed: bool) -> NDArray[Any] | list[Any]:
    """Pickle calls this by name: the strings."""
    array = pa.Array.from_buffers(pa.type_for_alias(kind), length, buffers)
    found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found.tolist() if listed else found
