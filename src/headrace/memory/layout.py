"""How frozen values are laid out, and how one of them is read.

Everything is a column: values of one kind, one a row. The shared object itself is a column of one row.

    none      nothing stored
    number    bool, int, float: a table of the narrowest format that holds them all
    complex   two floats a row
    wide      an int beyond 64 bits: a column of bytes
    text      offsets, UTF-8                     bytes     offsets, bytes         (numpy's str_ and bytes_ too)
    scalar    numpy scalars of one dtype         array     numpy arrays           tensor    torch tensors
    list      offsets, one column with the elements of all rows                   tuple     the same
    row       short tuples of one length, namedtuples: a column per place
    record    dicts with the same keys: a column per key
    map       other dicts: offsets, a column of keys, one of values, and the keys' hashes, sorted within each row
    same      rows that are the same object: row -> number in a column of the distinct ones
    union     rows of several kinds: row -> which column, which row of it

The contents of a segment are one list `[kind, arguments...]` a column; columns refer to others by number.
"""

import ast
import importlib
import operator
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from math import prod
from numbers import Number
from typing import Any

import numpy as np

from headrace.memory.segment import Array, Segment, reopen
from headrace.memory.views import SharedDict, SharedList, SharedTuple

Read = Callable[[int], Any]
"""The value of a row."""


class FrozenColumn:
    """Reads the values of one column. It keeps the segment and the columns that it refers to alive; the segment itself
    has only weak references to its columns."""

    __slots__ = ("__weakref__", "number", "segment")
    read: Read

    def __init__(self, segment: Segment, number: int) -> None:
        self.segment = segment
        self.number = number

    def pickled(self, view: type, rows: object) -> tuple[Any, ...]:
        """What `__reduce__` of a view over these rows returns."""
        return revive, (view, *self.segment.address(), self.number, rows)


class ValueColumn(FrozenColumn):
    """Values that are not looked into: `read` is the function that `KINDS` makes for it, called without a wrapper."""

    __slots__ = ("read",)

    def __init__(self, segment: Segment, number: int, read: Read) -> None:
        super().__init__(segment, number)
        self.read = read


class Records(FrozenColumn):
    __slots__ = ("_fields",)

    def __init__(self, segment: Segment, number: int, keys: list[str], fields: list[int]) -> None:
        super().__init__(segment, number)
        self._fields = {key: column(segment, field) for key, field in zip(keys, fields, strict=True)}

    def read(self, row: int) -> SharedDict:
        return SharedDict(self, row)

    def find(self, row: int, key: Any) -> Any:
        return self._fields[key].read(row)

    def size(self, row: int) -> int:
        return len(self._fields)

    def keys(self, row: int) -> Iterator[str]:
        return iter(self._fields)

    def values(self, row: int) -> Iterator[Any]:
        return (field.read(row) for field in self._fields.values())


class Maps(FrozenColumn):
    __slots__ = ("_hashes", "_keys", "_offsets", "_order", "_values")

    def __init__(
        self, segment: Segment, number: int, offsets: Array, hashes: Array, order: Array, keys: int, values: int
    ) -> None:
        super().__init__(segment, number)
        self._offsets, self._hashes, self._order = map(segment.table, (offsets, hashes, order))
        self._keys = column(segment, keys)
        self._values = column(segment, values)

    def read(self, row: int) -> SharedDict:
        return SharedDict(self, row)

    def find(self, row: int, key: object) -> Any:
        wanted = stable_hash(key)
        stop = self._offsets[row + 1]
        at = bisect_left(self._hashes, wanted, self._offsets[row], stop)
        while at < stop and self._hashes[at] == wanted:
            entry = self._order[at]
            if self._keys.read(entry) == key:
                return self._values.read(entry)
            at += 1
        raise KeyError(key)

    def size(self, row: int) -> int:
        return int(self._offsets[row + 1] - self._offsets[row])

    def keys(self, row: int) -> Iterator[Any]:
        return map(self._keys.read, range(self._offsets[row], self._offsets[row + 1]))

    def values(self, row: int) -> Iterator[Any]:
        return map(self._values.read, range(self._offsets[row], self._offsets[row + 1]))


def column(segment: Segment, number: int) -> Any:
    found = segment.columns.get(number)
    if found is None:
        kind, *arguments = segment.contents[number]
        if kind in MAPPINGS:
            found = MAPPINGS[kind](segment, number, *arguments)
        else:
            found = ValueColumn(segment, number, KINDS[kind](segment, *arguments))
        segment.columns[number] = found
    return found


def revive(view: Callable[[Any, Any], Any], token: bytes, places: Any, number: int, rows: Any) -> Any:
    """Pickle calls this by name: makes the view again, over the memory at that address."""
    return view(column(reopen(token, places), number), rows)


def _nothing(segment: Segment) -> Read:
    return lambda row: None


def _numbers(segment: Segment, table: Array) -> Read:
    return segment.table(table).__getitem__


def _complexes(segment: Segment, table: Array) -> Read:
    parts = segment.table(table)
    return lambda row: complex(parts[2 * row], parts[2 * row + 1])


def _blobs(decode: Callable[[bytes], Any]) -> Callable[[Segment, Array], Read]:
    def opened(segment: Segment, offsets: Array) -> Read:
        memory, at = segment.memory, segment.table(offsets)
        return lambda row: decode(memory[at[row] : at[row + 1]])

    return opened


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _scalars(segment: Segment, dtype: str, start: int, count: int) -> Read:
    return _block(segment, dtype, start, count).__getitem__  # type: ignore[no-any-return]


def _arrays(segment: Segment, dtype: str, start: int, count: int, shapes: Any, offsets: Array | None) -> Read:
    block, extent = _block(segment, dtype, start, count), _extents(segment, shapes, offsets)

    def read(row: int) -> Any:
        start, stop, shape = extent(row)
        return block[start:stop].reshape(shape)

    return read


def _tensors(segment: Segment, dtype: str, start: int, shapes: Any, offsets: Array | None) -> Read:
    """As arrays. Torch is imported when the first tensor is read.

    Torch has no read-only tensors, and a write to read-only memory kills the process: tensors look at the scratch
    mapping, where a write stays in this process.
    """
    extent, scratch = _extents(segment, shapes, offsets), segment.scratch

    def read(row: int) -> Any:
        import torch

        first, stop, shape = extent(row)
        kind = getattr(torch, dtype)
        if first == stop:  # frombuffer refuses to make an empty one
            return torch.empty(shape, dtype=kind)
        offset = start + first * kind.itemsize
        return torch.frombuffer(scratch(), dtype=kind, count=stop - first, offset=offset).reshape(shape)

    return read


def _sequences(view: type[SharedList] | type[SharedTuple]) -> Callable[[Segment, Array, int], Read]:
    def opened(segment: Segment, offsets: Array, elements: int) -> Read:
        at, below = segment.table(offsets), column(segment, elements)
        return lambda row: view(below, range(at[row], at[row + 1]))

    return opened


def _rows(segment: Segment, places: list[int]) -> Read:
    reads = [column(segment, place).read for place in places]
    return lambda row: tuple([read(row) for read in reads])


def _named_rows(segment: Segment, module: str, name: str, places: list[int]) -> Read:
    plain = _rows(segment, places)
    return lambda row: named(module, name)._make(plain(row))


def _same(segment: Segment, table: Array, distinct: int) -> Read:
    which, read = segment.table(table), column(segment, distinct).read
    return lambda row: read(which[row])


def _union(segment: Segment, tags: Array, rows: Array, members: list[int]) -> Read:
    tag, place = segment.table(tags), segment.table(rows)
    reads = [column(segment, member).read for member in members]
    return lambda row: reads[tag[row]](place[row])


MAPPINGS: dict[str, Callable[..., FrozenColumn]] = {"record": Records, "map": Maps}
KINDS: dict[str, Callable[..., Read]] = {
    "none": _nothing,
    "number": _numbers,
    "complex": _complexes,
    "wide": _blobs(lambda raw: int.from_bytes(raw, "little", signed=True)),
    "text": _blobs(_text),
    "bytes": _blobs(bytes),
    "numpy text": _blobs(lambda raw: np.str_(_text(raw))),
    "numpy bytes": _blobs(np.bytes_),
    "scalar": _scalars,
    "array": _arrays,
    "tensor": _tensors,
    "list": _sequences(SharedList),
    "tuple": _sequences(SharedTuple),
    "row": _rows,
    "named row": _named_rows,
    "same": _same,
    "union": _union,
}


def stable_hash(key: object) -> int:
    """Equal keys have equal hashes in every process; `hash` promises that only for numbers and tuples of them."""
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return zlib.crc32(key)
    if isinstance(key, (tuple, SharedTuple)):
        return hash(tuple(map(stable_hash, key)))
    if key is None:
        return 0
    return hash(key)


def hashes_stably(key: object) -> bool:
    if isinstance(key, (tuple, SharedTuple)):
        return all(map(hashes_stably, key))
    # A key that is not equal to itself (NaN) could never be found.
    return key is None or (isinstance(key, (str, bytes, Number)) and bool(key == key))


def named(module: str, name: str) -> Any:
    """The class of this module and qualified name."""
    return operator.attrgetter(name)(sys.modules.get(module) or importlib.import_module(module))


def _block(segment: Segment, dtype: str, start: int, count: int) -> Any:
    form = np.lib.format.descr_to_dtype(ast.literal_eval(dtype))
    if count * form.itemsize == 0:  # frombuffer refuses to make an empty one
        return np.frombuffer(b"", np.uint8).view(form) if form.itemsize else np.empty(count, form)
    return np.frombuffer(segment.memory, form, count, start)


def _extents(segment: Segment, shapes: Any, offsets: Array | None) -> Callable[[int], tuple[int, int, Any]]:
    """A function of the row: where its elements start and stop among those of all rows, and its shape."""
    if offsets is None:
        size = prod(shapes)
        return lambda row: (row * size, (row + 1) * size, shapes)
    every, at = segment.table(shapes), segment.table(offsets)
    axes = len(every) // (len(at) - 1)
    return lambda row: (at[row], at[row + 1], tuple(every[row * axes : (row + 1) * axes]))
