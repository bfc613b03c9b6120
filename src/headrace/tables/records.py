"""Records: plain columns laid out by rows, one record a row.

Fields of one dtype stand side by side, so that they become columns again in one step. The widest come first, so that
every field is aligned. A mask is a field of its own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.column import Column, NumpyColumn, packed_field

STEP = 1 << 22
"""Bytes of records that are filled at a time: what the processor's cache holds."""


class RecordLayout:
    """Where the values and masks of which columns stand in a record."""

    __slots__ = ("about", "dtype", "order")

    def __init__(self, columns: Mapping[str, NumpyColumn]) -> None:
        parts = {(name, False): (c.values.dtype, c.values.shape[1:]) for name, c in columns.items()}
        masks = {name: c.mask for name, c in columns.items() if c.mask is not None}
        parts |= {(name, True): (np.dtype(np.bool_), mask.shape[1:]) for name, mask in masks.items()}
        self.order = sorted(parts, key=lambda p: (-parts[p][0].itemsize, len(parts[p][1]), parts[p][0].str))
        self.dtype = np.dtype([(f"f{i}", *parts[part]) for i, part in enumerate(self.order)])
        self.about = {name: (packed_field(c), c.dtype) for name, c in columns.items()}

    def fill(self, records: NDArray[Any], columns: Mapping[str, Column]) -> None:
        """Write the values of these columns into as many records; fields of other columns are left as they are."""
        for i, (name, is_mask) in enumerate(self.order):
            column = columns.get(name)
            if column is None:
                continue
            assert isinstance(column, NumpyColumn)
            if is_mask:
                records[f"f{i}"] = False if column.mask is None else column.mask
            else:
                records[f"f{i}"] = column.values

    def columns(self, records: NDArray[Any]) -> dict[str, Column]:
        """The fields of records as columns."""
        masks = {name: records[f"f{i}"] for i, (name, is_mask) in enumerate(self.order) if is_mask}
        values = {name: records[f"f{i}"] for i, (name, is_mask) in enumerate(self.order) if not is_mask}
        return {name: NumpyColumn(values[name], masks.get(name), *self.about[name]) for name in self.about}

    @property
    def step(self) -> int:
        """Records that are best filled at a time."""
        return max(1, STEP // max(1, self.dtype.itemsize))
