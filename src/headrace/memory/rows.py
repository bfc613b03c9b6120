"""Rows: the arrays of a batch, allocated before its samples are made, so that each is written straight into them.

    sample 0 ─┐                        columns[0]: one array of (size, *shape), in the memory that goes to the consumer
    sample 1 ─┼─ row() or write() ──>  the sample's row of every column
    sample 2 ─┘                        as_column(): the column, if a batch is made of nothing but its rows

Samples that are copied when all of a batch are there are read from memory once more; copied at once, a sample is still
in the processor's cache. The first sample says which columns there are. A sample of another shape gets no row and stays
as it is; the collate op sees that its parts are not rows, and stacks them.
"""

import sys
from collections.abc import Callable, Sequence
from math import inf, prod
from operator import is_
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

WORTH = 64 * 1024
"""Smaller arrays, in bytes, get no row: keeping track of it would cost more than it saves."""

FASTEST = 150e9
"""Bytes a second. No core writes memory that fast: an array that comes faster was not made now but looked up, and is in
no cache. Such samples are better copied together, when the batch is made."""

Allocate = Callable[[tuple[int, ...], Any], "np.ndarray[Any, Any]"]


class Rows:
    """The columns of one batch."""

    __slots__ = (
        "_allocate", "_array", "_asked", "_column", "_columns", "_filled", "_row", "_rows", "_took", "ordinal", "size",
    )  # fmt: skip

    def __init__(self, size: int, allocate: Allocate, ordinal: int) -> None:
        self.size = size
        self.ordinal = ordinal
        """The number of the op that makes the samples: it may ask for rows and write into them itself."""
        self._allocate = allocate
        self._array: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        self._columns: list[Any] = []
        self._rows: list[list[Any]] = []
        """The rows of each column."""
        self._filled: list[int] = []
        """How many rows of each column samples have got, from the first on."""
        self._row = 0
        """The number of the sample that is being made."""
        self._column = 0
        """The column whose row is asked for next."""
        self._asked = False
        """The op has asked for rows of this sample."""
        self._took = inf
        """Seconds that making the first sample has taken."""

    def into_rows(self, get: Callable[[int], Any]) -> Callable[[int], Any]:
        """`get`, with its samples written into the rows one after the other; one that fails leaves its row free."""

        def get_into_rows(position: int) -> Any:
            if self._row and not self._columns:
                return get(position)  # the first sample had no large array
            self._column, self._asked = 0, False
            if self._row:
                sample = get(position)
            else:
                began = perf_counter()
                sample = get(position)
                self._took = perf_counter() - began
            sample = self.write(sample)
            self._row += 1
            return sample

        return get_into_rows

    @property
    def empty(self) -> bool:
        """Whether no sample has had a large array so far."""
        return not self._columns

    def let_go(self) -> None:
        """Write no sample into these columns any more."""
        self._columns, self._rows, self._filled = [], [], []

    def row(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """For the op that makes the sample: its row in the next column, or None if that has another shape or dtype."""
        self._asked = True
        return self._next_row(shape, dtype)

    def _next_row(self, shape: tuple[int, ...], dtype: Any) -> Any:
        number, at = self._column, self._row
        self._column = number + 1
        if number >= len(self._columns):
            if at or number > len(self._columns) or prod(shape) * dtype.itemsize > FASTEST * self._took:
                return None
            column = self._allocate((self.size, *shape), dtype)
            self._columns.append(column)
            self._rows.append(list(column))
            self._filled.append(0)
        row = self._rows[number][at]
        if row.shape != shape or (row.dtype is not dtype and row.dtype != dtype) or self._filled[number] < at:
            return None
        self._filled[number] = at + 1
        return row

    def write(self, sample: Any) -> Any:
        """The sample, its large arrays in their rows."""
        kind = type(sample)
        if kind is tuple:
            return tuple([self._written(part) for part in sample])
        if kind is dict:
            return {name: self._written(part) for name, part in sample.items()}
        return self._written(sample)

    def _written(self, part: Any) -> Any:
        if type(part) is self._array:
            if part.nbytes < WORTH or part.dtype.hasobject or (self._asked and self._is_row(part)):
                return part
            row = self._next_row(part.shape, part.dtype)
            if row is not None:
                row[...] = part
                return row
        elif type(part) is getattr(sys.modules.get("torch"), "Tensor", None):
            return self._written_tensor(part)
        return part

    def _written_tensor(self, tensor: Any) -> Any:
        torch: Any = sys.modules["torch"]
        try:
            array = tensor.numpy()
        except (RuntimeError, TypeError):  # with a gradient, elsewhere, sparse, or of a type that numpy does not know
            return tensor
        row = self._next_row(array.shape, array.dtype) if array.nbytes >= WORTH else None
        if row is None:
            return tensor
        written = self._rows[self._column - 1][self._row] = torch.from_numpy(row)
        return written.copy_(tensor)

    def _is_row(self, part: Any) -> bool:
        """Whether the op has written this part into its row already."""
        return any(rows[self._row] is part for rows in self._rows)

    def as_column(self, parts: Sequence[Any]) -> Any:
        """These parts of samples as one array, without a copy; None if they are not rows of one column, in order."""
        for column, rows, filled in zip(self._columns, self._rows, self._filled, strict=True):
            if rows[0] is parts[0]:
                same = filled >= len(parts) and all(map(is_, parts, rows))
                return column[: len(parts)] if same else None
        return None
