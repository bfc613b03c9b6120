"""Column: the values of one name, in one of two ways.

    Plain   a numpy array with one entry a row, and a mask where values may be missing (True: missing)
    Arrow   a pyarrow array: text, lists, structs, categories, decimals - what has no numpy dtype of its own

A plain column remembers the Arrow type that it came from (`field`) and a column the pandas dtype (`dtype`), so that a
batch can be given back in them. Nothing is ever filled in for a missing value.

A column never changes; it is not frozen only because freezing triples the cost of making one, and a batch has many.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Plain:
    values: NDArray[Any]
    mask: NDArray[np.bool_] | None = None
    field: Any = None
    dtype: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, positions: Ints) -> "Plain":
        mask = None if self.mask is None else self.mask[positions]
        return replace(self, values=self.values[positions], mask=mask)

    def at(self, row: int) -> Any:
        return None if self.mask is not None and self.mask[row] else self.values[row]


@dataclass(slots=True, eq=False)
class Arrow:
    array: Any
    field: Any = None
    dtype: Any = None

    def __len__(self) -> int:
        return len(self.array)

    def take(self, positions: Ints) -> "Arrow":
        return replace(self, array=self.array.take(positions))

    def at(self, row: int) -> Any:
        from headrace.columns.arrow import to_numpy

        value = to_numpy(self.array.slice(row, 1))
        return None if np.ma.getmaskarray(value)[0] else value[0]


Column = Plain | Arrow
