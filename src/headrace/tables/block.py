"""Columns: a batch as a dict of arrays that travels as few blocks of memory, and arrives as a plain dict.

A hundred arrays cost a hundred pickled heads in the worker and as many views in the consumer. Columns of one dtype lie
in one block already (see `table`): the block travels, and the consumer cuts it.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.op import place

Blocks = Sequence[tuple[tuple[str, ...], NDArray[Any]]]


class Columns(dict[str, Any]):
    """In a worker, a dict of arrays that knows in which blocks they lie."""

    __slots__ = ("blocks", "cut", "form")
    form: str
    blocks: Blocks
    cut: dict[str, Any]

    @staticmethod
    def of(form: str, arrays: dict[str, Any], blocks: Blocks) -> dict[str, Any]:
        """The arrays; with a form to travel in where they are about to travel."""
        if place.allocate is None:
            return arrays
        made = Columns(arrays)
        made.form, made.blocks, made.cut = form, blocks, arrays
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # The user may have changed the dict since: what is not the array that was cut from a block travels by itself.
        whole = [(names, block) for names, block in self.blocks if self._has_all(names)]
        blocked = {name for names, _ in whole for name in names}
        rest = {name: _flat(value) for name, value in self.items() if name not in blocked}
        return arrive, (self.form, tuple(self), whole, rest)

    def _has_all(self, names: tuple[str, ...]) -> bool:
        """Whether each of these is still the array that was cut. (No loop in Python: there may be hundreds.)"""
        return all(map(is_, map(self.get, names), map(self.cut.get, names, repeat(_GONE))))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()


_GONE = object()


def arrive(form: str, names: tuple[str, ...], blocks: Blocks, rest: dict[str, Any]) -> dict[str, Any]:
    """Pickle calls this by name: the dict again, its arrays cut from the blocks."""
    found: dict[str, Any] = {}
    for members, block in blocks:
        found |= zip(members, _cut(form, block), strict=True)
    if not rest and len(blocks) == 1 and blocks[0][0] == names:
        return found
    for name, value in rest.items():
        found[name] = np.ma.MaskedArray(value.values, value.mask) if isinstance(value, _Masked) else value
    return {name: found[name] for name in names}


def _cut(form: str, block: NDArray[Any]) -> Any:
    if form == "torch" and in_torch(block.dtype):
        import torch

        return torch.from_numpy(block).unbind(0)
    return block


def in_torch(dtype: "np.dtype[Any]") -> bool:
    """Whether torch has this dtype: numbers and truth values in this machine's byte order, no long doubles."""
    return dtype.kind in "biufc" and dtype.isnative and dtype.char not in "gG"


class _Masked:
    """A masked array on its way: pickle would copy its parts into the head."""

    __slots__ = ("mask", "values")

    def __init__(self, values: NDArray[Any], mask: NDArray[np.bool_]) -> None:
        self.values = values
        self.mask = mask

    def __reduce__(self) -> tuple[Any, ...]:
        return _Masked, (self.values, self.mask)


def _flat(value: object) -> Any:
    if isinstance(value, np.ma.MaskedArray) and not value.dtype.hasobject:
        return _Masked(value.data, np.ma.getmaskarray(value))
    return value
