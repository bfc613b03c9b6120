"""How a table goes to a worker that was not forked: once, into shared memory, and to each worker as a ticket.

    numbers           records, one a row (see `table`): the copy that has to be made anyway is laid out for gathering
    Arrow columns     an Arrow stream, read in place
    memory-mapped     by path: the file is mapped there too
    numpy objects     by pickle
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.columns.column import Arrow, Column, Plain, packed_field
from headrace.columns.packages import package
from headrace.columns.table import Table
from headrace.share.segment import LINUX, Draft, Segment, reopen

CHUNK = 1 << 22
"""Bytes of records that are laid out at a time."""
ALIGN = 64


def ship(table: Table) -> tuple[Any, ...]:
    """The arguments of `unship`; the memory lives as long as the table here does."""
    if table.shipment is None:
        table.shipment = _ship(table)
    segment, layout, rest = table.shipment
    return (None if segment is None else segment.ticket(), table.names, table.length, layout, rest)


def _ship(table: Table) -> tuple[Segment | None, Any, dict[str, Any]]:
    rest: dict[str, Any] = {}
    arrays: dict[tuple[str, bool], NDArray[Any]] = {}
    arrow: dict[str, Arrow] = {}
    for name, column in table.columns.items():
        if isinstance(column, Arrow):
            arrow[name] = column
        elif (mapped := _mapped(column.values)) is not None and column.mask is None:
            rest[name] = ("mapped", mapped, packed_field(column), column.dtype)
        elif column.values.dtype.hasobject or not LINUX:
            rest[name] = ("plain", column.values, column.mask, packed_field(column), column.dtype)
        else:
            arrays[name, False] = column.values
            if column.mask is not None:
                arrays[name, True] = column.mask
    if not LINUX:
        rest |= {name: ("arrow", column) for name, column in arrow.items()}
        return None, None, rest
    if not arrays and not arrow:
        return None, None, rest
    draft = Draft()
    try:
        layout = (_write_records(draft, table, arrays), _write_arrow(draft, table, arrow))
        return draft.finish([]), layout, rest
    except BaseException:
        draft.discard()
        raise


def _write_records(draft: Draft, table: Table, arrays: dict[tuple[str, bool], NDArray[Any]]) -> Any:
    if not arrays:
        return None
    # Fields of one dtype side by side, the widest first, so that every field is aligned.
    order = sorted(arrays, key=lambda k: (-arrays[k].dtype.itemsize, arrays[k].ndim > 1, arrays[k].dtype.str))
    dtype = np.dtype([(f"f{i}", arrays[k].dtype, arrays[k].shape[1:]) for i, k in enumerate(order)])
    gap = np.empty(0, np.uint8)
    start = draft.put(gap, ALIGN)
    for first, stop in _spans(table.length, max(1, CHUNK // max(1, dtype.itemsize))):
        chunk = np.empty(stop - first, dtype)
        for i, key in enumerate(order):
            chunk[f"f{i}"] = arrays[key][first:stop]
        draft.put(chunk.view(np.uint8) if dtype.itemsize else gap)
    about = {n: (packed_field(c), c.dtype) for n, c in table.columns.items() if (n, False) in arrays}
    return start, dtype, order, about


def _spans(length: int, step: int) -> Iterator[tuple[int, int]]:
    for first in range(0, length, step):
        yield first, min(first + step, length)


def _write_arrow(draft: Draft, table: Table, columns: dict[str, Arrow]) -> Any:
    if not columns:
        return None
    pa = package("pyarrow")
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([c.array for c in columns.values()], names=list(columns))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    return draft.put(data, ALIGN), data.size, {n: (packed_field(c), c.dtype) for n, c in columns.items()}


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


def _reopen_mapped(path: str, offset: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any]:
    whole = np.memmap(path, np.uint8, "r")
    return np.ndarray(shape, dtype, whole, offset, strides)


def unship(ticket: Any, names: tuple[str, ...], length: int, layout: Any, rest: dict[str, Any]) -> Table:
    """The table again, in another process."""
    columns: dict[str, Column] = {}
    records = None
    segment = None if ticket is None else reopen(*ticket)
    if segment is not None:
        numbers, arrow = layout
        if numbers is not None:
            start, dtype, order, about = numbers
            records = np.frombuffer(segment.memory, dtype, length, start)
            columns |= _fields(records, order, about)
        if arrow is not None:
            columns |= _read_arrow(memoryview(segment.memory)[arrow[0] : arrow[0] + arrow[1]], arrow[2])
    for name, (kind, *parts) in rest.items():
        if kind == "mapped":
            columns[name] = Plain(_reopen_mapped(*parts[0]), None, parts[1], parts[2])
        else:
            columns[name] = parts[0] if kind == "arrow" else Plain(*parts)
    table = Table({name: columns[name] for name in names}, length, records)
    if segment is not None:
        table.shipment = (segment, layout, rest)
    return table


def _fields(records: NDArray[Any], order: list[tuple[str, bool]], about: dict[str, Any]) -> dict[str, Column]:
    found: dict[str, Plain] = {}
    masks = {}
    for i, (name, is_mask) in enumerate(order):
        if is_mask:
            masks[name] = records[f"f{i}"]
        else:
            found[name] = Plain(records[f"f{i}"], None, *about[name])
    return {name: replace(column, mask=masks.get(name)) for name, column in found.items()}


def _read_arrow(memory: memoryview, about: dict[str, Any]) -> dict[str, Column]:
    pa = package("pyarrow")
    with pa.ipc.open_stream(pa.py_buffer(memory)) as reader:
        batch = reader.read_next_batch()
    return {name: Arrow(batch.column(name), *about[name]) for name in batch.schema.names}
