"""Rows: the places of a batch's samples, so that each is written there as it is made.

    sample 0 ─┐                     columns[0]: one array of (size, *shape) in the travelling memory
    sample 1 ─┼─ give() or settle() ──> its row of every column
    sample 2 ─┘                     whole(): the column again, if all of its rows are what was given

A batch whose samples are copied when all of them are there reads each from memory; copied at once, it is still in the
processor's cache. The first sample says which columns there are. A sample of another shape gets no row and stays as it
is, and whoever collates the batch finds that out: nothing has to be undone.
"""

import sys
from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

WORTH = 64 * 1024
"""Bytes of an array from which on a row is worth its keeping."""

Allocate = Callable[[tuple[int, ...], Any], "np.ndarray[Any, Any]"]


class Rows:
    """The columns of one batch."""

    __slots__ = ("_allocate", "_array", "_asked", "_columns", "_given", "_row", "_turn", "ordinal", "size")

    def __init__(self, size: int, allocate: Allocate, ordinal: int) -> None:
        self.size = size
        self.ordinal = ordinal
        """The op that makes the samples: it may ask for their rows before it writes them."""
        self._allocate = allocate
        self._array: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        self._columns: list[Any] = []
        self._given: list[list[Any]] = []
        self._row = self._turn = 0
        self._asked = False
        """Somebody has asked for rows of the sample at hand."""

    def placed(self, get: Callable[[int], Any]) -> Callable[[int], Any]:
        """`get`, whose samples are written into the rows, one after the other; one that fails leaves its row free."""

        def placed_get(position: int) -> Any:
            if self._row and not self._columns:
                return get(position)  # the first one had nothing that is worth a row
            self._turn, self._asked = 0, False
            for given in self._given:
                del given[self._row :]
            sample = self.settle(get(position))
            self._row += 1
            return sample

        return placed_get

    @property
    def empty(self) -> bool:
        """Nothing has been worth a row so far."""
        return not self._columns

    def give(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The row of the sample at hand in the next column, or None if there is none that fits."""
        self._asked = True
        return self._give(shape, dtype)

    def _give(self, shape: tuple[int, ...], dtype: Any) -> Any:
        turn = self._turn
        self._turn += 1
        if turn >= len(self._columns):
            if self._row or turn > len(self._columns):
                return None
            self._columns.append(self._allocate((self.size, *shape), dtype))
            self._given.append([])
        column, given = self._columns[turn], self._given[turn]
        if column.shape[1:] != shape or column.dtype != dtype or len(given) != self._row:
            return None
        given.append(column[self._row])
        return given[-1]

    def settle(self, sample: Any) -> Any:
        """The sample, its large arrays in their rows."""
        kind = type(sample)
        if kind is tuple:
            return tuple([self._settled(part) for part in sample])
        if kind is dict:
            return {name: self._settled(part) for name, part in sample.items()}
        return self._settled(sample)

    def _settled(self, part: Any) -> Any:
        if type(part) is self._array:
            if part.nbytes < WORTH or part.dtype.hasobject or (self._asked and self._has(part)):
                return part
            row = self._give(part.shape, part.dtype)
            if row is not None:
                row[...] = part
                return row
        elif type(part) is getattr(sys.modules.get("torch"), "Tensor", None):
            return self._settled_tensor(part)
        return part

    def _settled_tensor(self, tensor: Any) -> Any:
        torch: Any = sys.modules["torch"]
        try:
            array = tensor.numpy()
        except (RuntimeError, TypeError):  # with a gradient, elsewhere, sparse, or of a type that numpy does not know
            return tensor
        row = self._give(array.shape, array.dtype) if array.nbytes >= WORTH else None
        if row is None:
            return tensor
        placed = self._given[self._turn - 1][-1] = torch.from_numpy(row)
        return placed.copy_(tensor)

    def _has(self, part: Any) -> bool:
        return any(len(given) > self._row and given[self._row] is part for given in self._given)

    def whole(self, parts: Sequence[Any]) -> Any:
        """All these rows as one array, or None if they are not the rows of one column, in order."""
        for column, given in zip(self._columns, self._given, strict=True):
            if given and given[0] is parts[0]:
                same = len(given) >= len(parts) and all(map(is_, parts, given))
                return column[: len(parts)] if same else None
        return None
