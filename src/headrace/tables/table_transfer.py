"""How a table goes to a worker that was not forked: once, into shared memory, and to each worker as a ticket.

numbers           records, one a row (see `records`): the copy that has to be made anyway is laid out for gathering
Arrow columns     an Arrow stream, read in place
memory-mapped     by path: the file is mapped there too
numpy objects     by pickle
"""

import os
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.memory.arena import LINUX
from headrace.memory.segment import Segment, SegmentWriter, reopen
from headrace.tables.column import ArrowColumn, Column, NumpyColumn, packed_field
from headrace.tables.ipc import ALIGN, read_stream, write_stream
from headrace.tables.packages import pa
from headrace.tables.records import RecordLayout
from headrace.tables.table import Table


def ship(table: Table) -> tuple[Any, ...]:
    """The arguments of `unship`; the memory lives as long as the table here does."""
    if table.shipment is None:
        table.shipment = _ship(table)
    segment, layout, rest = table.shipment
    mapped = None if table.records is None else _mapped(table.records)
    return (None if segment is None else segment.address(), table.names, table.length, layout, rest, mapped)


def _ship(table: Table) -> tuple[Segment | None, Any, dict[str, Any]]:
    rest: dict[str, Any] = {}
    """Columns that are not in the segment; of a mapped one the values are where they lie."""
    plain: dict[str, NumpyColumn] = {}
    arrow: dict[str, ArrowColumn] = {}
    for name, column in table.columns.items():
        if isinstance(column, ArrowColumn):
            arrow[name] = column
        elif column.mask is None and (mapped := _mapped(column.values)) is not None:
            rest[name] = replace(column, values=mapped, field=packed_field(column))  # type: ignore[arg-type]
        elif column.values.dtype.hasobject or not LINUX:
            rest[name] = replace(column, field=packed_field(column))
        else:
            plain[name] = column
    if not LINUX or not (plain or arrow):
        return None, None, rest | arrow
    writer = SegmentWriter()
    try:
        layout = (_write_records(writer, table, plain), _write_arrow(writer, arrow))
        return writer.finish([]), layout, rest
    except BaseException:
        writer.discard()
        raise


def _write_records(writer: SegmentWriter, table: Table, columns: dict[str, NumpyColumn]) -> Any:
    if not columns:
        return None
    layout = RecordLayout(columns)
    start = writer.put(b"", ALIGN)
    for first in range(0, table.length, layout.step):
        part = {name: column.slice(first, first + layout.step) for name, column in columns.items()}
        records = np.empty(min(layout.step, table.length - first), layout.dtype)
        layout.fill(records, part)
        writer.put(records.view(np.uint8).data)
    return start, layout


def _write_arrow(writer: SegmentWriter, columns: dict[str, ArrowColumn]) -> Any:
    if not columns:
        return None
    sink = pa.BufferOutputStream()
    write_stream(sink, {name: column.array for name, column in columns.items()})
    data = sink.getvalue()
    return writer.put(data, ALIGN), data.size, {n: (packed_field(c), c.dtype, c.may_miss) for n, c in columns.items()}


def _mapped(values: NDArray[Any]) -> tuple[Any, ...] | None:
    """Where a memory-mapped array lies in its file."""
    base: Any = values
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    while isinstance(base, np.memmap) and isinstance(base.base, np.memmap):
        base = base.base
    if not isinstance(base, np.memmap) or base.filename is None or base.mode == "c":
        return None
    offset = values.__array_interface__["data"][0] - base.__array_interface__["data"][0] + base.offset
    return os.fspath(base.filename), offset, values.dtype, values.shape, values.strides


def _reopen_mapped(
    path: str, offset: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NDArray[Any]:
    return np.ndarray(shape, dtype, _whole_file(path), offset, strides)


@lru_cache(maxsize=16)
def _whole_file(path: str) -> NDArray[np.uint8]:
    """One mapping for all columns of a file: fields of one record must lie in one array."""
    return np.memmap(path, np.uint8, "r")


def unship(
    ticket: Any, names: tuple[str, ...], length: int, layout: Any, rest: dict[str, Any], mapped: Any = None
) -> Table:
    """The table again, in another process."""
    columns: dict[str, Column] = {}
    records = None if mapped is None else _reopen_mapped(*mapped)
    segment = None if ticket is None else reopen(*ticket)
    if segment is not None:
        numbers, arrow = layout
        if numbers is not None:
            start, written = numbers
            records = np.frombuffer(segment.memory, written.dtype, length, start)
            columns |= written.columns(records)
        if arrow is not None:
            start, size, about = arrow
            arrays = read_stream(memoryview(segment.memory)[start : start + size])
            columns |= {name: ArrowColumn(array, *about[name]) for name, array in arrays.items()}
    for name, column in rest.items():
        mapped = isinstance(column, NumpyColumn) and isinstance(column.values, tuple)
        columns[name] = replace(column, values=_reopen_mapped(*column.values)) if mapped else column
    table = Table({name: columns[name] for name in names}, length, records)
    if segment is not None:
        table.shipment = (segment, layout, rest)
    return table
