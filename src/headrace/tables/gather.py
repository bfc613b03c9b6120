"""The gather: many rows of a table at once, with one vectorised call per column or less.

Numbers are written straight into the memory that travels to the consumer (`place.empty`). Columns of one dtype go into
one *block* of shape (columns, rows), so that a batch of a hundred columns travels as one array.

A table that is kept by rows (records) is faster: a row is fetched whole, with one miss of the processor's cache where
a hundred columns have a hundred, and its fields are laid out as columns afterwards.
"""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.op import place
from headrace.tables.column import ArrowColumn, Column, Ints, NumpyColumn

Block = tuple[tuple[str, ...], NDArray[Any]]
"""Names, and an array with one row for each of them."""
LINE = 64
"""Bytes that a processor fetches at once."""
Rows = NDArray[np.uint8]
"""Records as bytes, of shape (rows, bytes of a record)."""


class GatherPlan:
    """Which columns are gathered together, worked out once for each choice of columns.

    `whole`: the rows of the records are there already, so columns come out of them however few they are.
    """

    def __init__(self, columns: dict[str, Column], records: NDArray[Any] | None = None, whole: bool = False) -> None:
        self._columns = columns
        self._records = records
        self._runs: list[tuple[int, int, np.dtype[Any], tuple[str, ...]]] = []
        """Neighbouring fields of one dtype: first byte, last byte, dtype, names."""
        self._fields: list[tuple[str, int, int | None]] = []
        """Fields that become arrays of their own: name, first byte of the values, first byte of the mask."""
        self._groups: dict[np.dtype[Any], dict[str, NDArray[Any]]] = {}
        """Columns outside the records that go into one block, by their dtype."""
        self._single: list[str] = []
        inside: list[tuple[int, str]] = []
        for name, column in columns.items():
            if isinstance(column, ArrowColumn):
                self._single.append(name)
            elif (offset := _offset(records, column.values)) is not None:
                inside.append((offset, name))
            elif column.mask is None and column.values.ndim == 1 and _contiguous(column.values):
                self._groups.setdefault(column.values.dtype, {})[name] = column.values
            else:
                self._single.append(name)
        if records is not None and not whole and len(inside) * LINE < records.itemsize:
            self._single += [name for _, name in inside]  # cheaper than whole rows
        else:
            for offset, name in sorted(inside):
                self._add_field(offset, name)

    def _add_field(self, offset: int, name: str) -> None:
        column = self._columns[name]
        assert isinstance(column, NumpyColumn)
        if column.mask is not None or column.values.ndim > 1:
            self._fields.append((name, offset, None if column.mask is None else _offset(self._records, column.mask)))
            return
        dtype = column.values.dtype
        stop = offset + dtype.itemsize
        if self._runs:
            start, end, same, names = self._runs[-1]
            if end == offset and same == dtype:
                self._runs[-1] = (start, stop, dtype, (*names, name))
                return
        self._runs.append((offset, stop, dtype, (name,)))

    def gather(self, positions: Ints) -> tuple[dict[str, Column], list[Block]]:
        """The columns at these positions, and the blocks that some of them lie in."""
        found: dict[str, Column] = {}
        blocks: list[Block] = []
        if self._runs or self._fields:
            found, blocks = self.lay(fetched(self._records, positions))
        for dtype, arrays in self._groups.items():
            block = place.empty((len(arrays), len(positions)), dtype)
            for array, out in zip(arrays.values(), block, strict=True):
                array.take(positions, None, out, "clip")  # any other mode gathers into a buffer first
            self._add_block(found, blocks, tuple(arrays), block)
        for name in self._single:
            found[name] = self._columns[name].take(positions)
        return found, blocks

    def lay(self, rows: Rows) -> tuple[dict[str, Column], list[Block]]:
        """Records as columns, and the blocks that some of them lie in."""
        found: dict[str, Column] = {}
        blocks: list[Block] = []
        for start, stop, dtype, names in self._runs:
            block = place.empty((len(names), len(rows)), dtype)
            block[...] = rows[:, start:stop].view(dtype).T
            self._add_block(found, blocks, names, block)
        for name, start, mask in self._fields:
            column = self._columns[name]
            assert isinstance(column, NumpyColumn)
            values = _laid(rows, start, column.values)
            masked = None if mask is None or column.mask is None else _laid(rows, mask, column.mask)
            found[name] = replace(column, values=values, mask=masked)
        return found, blocks

    def _add_block(
        self, found: dict[str, Column], blocks: list[Block], names: tuple[str, ...], block: NDArray[Any]
    ) -> None:
        blocks.append((names, block))
        for name, values in zip(names, block, strict=True):
            column = self._columns[name]
            found[name] = NumpyColumn(values, None, column.field, column.dtype)


def _contiguous(values: NDArray[Any]) -> bool:
    return values.flags.c_contiguous and not values.dtype.hasobject


def _offset(records: NDArray[Any] | None, values: NDArray[Any]) -> int | None:
    """Where in a record these values lie, if they are a field of the records."""
    if records is None or values.strides[0] != records.itemsize or len(values) != len(records):
        return None
    offset: int = values.__array_interface__["data"][0] - records.__array_interface__["data"][0]
    return offset if offset >= 0 and offset + _width(values) <= records.itemsize else None


def _width(values: NDArray[Any]) -> int:
    width: int = values.dtype.itemsize * int(np.prod(values.shape[1:]))
    return width


def _laid(rows: Rows, start: int, like: NDArray[Any]) -> NDArray[Any]:
    out: NDArray[Any] = place.empty((len(rows), *like.shape[1:]), like.dtype)
    if out.size:  # (there are lists of a fixed size of 0)
        out[...] = rows[:, start : start + _width(like)].view(like.dtype).reshape(out.shape)
    return out


class _Scratch(threading.local):
    """Memory that one thread uses again and again: fresh memory costs more than what is written into it."""

    memory: Rows = np.empty(0, np.uint8)


_scratch = _Scratch()


def scratch(rows: int, width: int) -> Rows:
    """Rows of bytes, until the next call in this thread."""
    if _scratch.memory.nbytes < rows * width:
        _scratch.memory = np.empty(rows * width, np.uint8)
    return _scratch.memory[: rows * width].reshape(rows, width)


def fetched(records: Any, positions: Ints, out: Rows | None = None) -> Rows:
    """Whole records, as rows of bytes."""
    width = records.itemsize
    rows = scratch(len(positions), width) if out is None else out
    records.view(f"V{width}").take(positions, 0, rows.reshape(-1).view(f"V{width}"), "clip")
    return rows
