"""How a table goes to a worker that was not forked: it is written once into shared memory, which each worker opens.

numbers          as records, one a row (see `records`): the copy that is made anyway is laid out for gathering
Arrow columns    as an Arrow stream, read in place
memory-mapped    by path: the worker maps the file too
numpy objects    by pickle
"""

import os
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadPipe
from headrace.memory.arena import LINUX
from headrace.memory.segment import Segment, SegmentWriter, reopen
from headrace.sources.bytes import mapped
from headrace.tables.column import ArrowColumn, Column, NumpyColumn, field_of, packed_field
from headrace.tables.ipc import ALIGN, read_stream, write_stream
from headrace.tables.packages import pa
from headrace.tables.records import RecordLayout
from headrace.tables.table import Table


class MappedArray(NamedTuple):
    """Where a memory-mapped array lies in its file."""

    path: str
    file: tuple[int, int]
    """Device and inode: another file may take its name."""
    offset: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(values: NDArray[Any]) -> "MappedArray | None":
        """None if the array does not lie in a file."""
        base: Any = values
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        while isinstance(base, np.memmap) and isinstance(base.base, np.memmap):
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None or base.mode == "c":
            return None
        offset = values.__array_interface__["data"][0] - base.__array_interface__["data"][0] + base.offset
        path = os.fspath(base.filename)
        return MappedArray(path, _file(path)[:2], offset, values.dtype, values.shape, values.strides)

    def open(self) -> NDArray[Any]:
        device, inode, size = _file(self.path)
        if (device, inode) != self.file:
            raise BadPipe(f"{self.path} was replaced since the pipe was made: map it again, and make the pipe anew")
        return np.ndarray(self.shape, self.dtype, _mapped_file(self.path, self.file, size), self.offset, self.strides)


def _file(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size


@lru_cache(maxsize=16)
def _mapped_file(path: str, file: tuple[int, int], size: int) -> NDArray[np.uint8]:
    """One mapping for all columns of a file: fields of one record must lie in one array."""
    found: NDArray[np.uint8] = mapped(path)
    return found


def pack_table(table: Table) -> tuple[Any, ...]:
    """The arguments of `unpack_table`; the shared memory lives as long as the table here does."""
    if table.packed is None:
        table.packed = _pack(table)
    segment, layout, rest = table.packed
    mapped = None if table.records is None else MappedArray.of(table.records)
    return (None if segment is None else segment.address(), table.names, table.length, layout, rest, mapped)


def _pack(table: Table) -> tuple[Segment | None, Any, dict[str, Any]]:
    """The shared memory, what lies where in it, and the columns that are not in it."""
    rest: dict[str, Any] = {}
    plain: dict[str, NumpyColumn] = {}
    arrow: dict[str, ArrowColumn] = {}
    for name, column in table.columns.items():
        if isinstance(column, ArrowColumn):
            arrow[name] = column
        elif column.mask is None and (mapped := MappedArray.of(column.values)) is not None:
            rest[name] = replace(column, values=mapped, field=packed_field(column))  # type: ignore[arg-type]
        elif column.values.dtype.hasobject or not LINUX:
            rest[name] = replace(column, field=packed_field(column))
        else:
            plain[name] = column
    if not LINUX or not (plain or arrow):
        return None, None, rest | arrow
    writer = SegmentWriter()
    try:
        layout = (
            _write_records(writer, table, plain) if plain else None,
            _write_arrow(writer, arrow) if arrow else None,
        )
        return writer.finish([]), layout, rest
    except BaseException:
        writer.discard()
        raise


def _write_records(writer: SegmentWriter, table: Table, columns: dict[str, NumpyColumn]) -> Any:
    layout = RecordLayout(columns)
    start = writer.put(b"", ALIGN)
    for first in range(0, table.length, layout.step):
        part = {name: column.slice(first, first + layout.step) for name, column in columns.items()}
        records = np.empty(min(layout.step, table.length - first), layout.dtype)
        layout.fill(records, part)
        writer.put(records.view(np.uint8).data)
    return start, layout


def _write_arrow(writer: SegmentWriter, columns: dict[str, ArrowColumn]) -> Any:
    sink = pa.BufferOutputStream()
    write_stream(sink, {name: column.array for name, column in columns.items()})
    data = sink.getvalue()
    return writer.put(data, ALIGN), data.size, {n: (packed_field(c), c.dtype, c.may_miss) for n, c in columns.items()}


def unpack_table(
    address: Any,
    names: tuple[str, ...],
    length: int,
    layout: Any,
    rest: dict[str, Any],
    mapped: MappedArray | None = None,
) -> Table:
    """The table again, in another process."""
    columns: dict[str, Column] = {}
    records = None if mapped is None else mapped.open()
    segment = None if address is None else reopen(*address)
    if segment is not None:
        numbers, arrow = layout
        if numbers is not None:
            start, written = numbers
            records = np.frombuffer(segment.memory, written.dtype, length, start)
            columns |= written.columns(records)
        if arrow is not None:
            start, size, about = arrow
            for name in about:
                field_of(ArrowColumn(None, *about[name]))  # (so that all its types are known before it is read)
            arrays = read_stream(memoryview(segment.memory)[start : start + size])
            columns |= {name: ArrowColumn(array, *about[name]) for name, array in arrays.items()}
    for name, column in rest.items():
        is_mapped = isinstance(column, NumpyColumn) and isinstance(column.values, MappedArray)
        columns[name] = replace(column, values=column.values.open()) if is_mapped else column
    table = Table({name: columns[name] for name in names}, length, records)
    if segment is not None:
        table.packed = (segment, layout, rest)
    return table
