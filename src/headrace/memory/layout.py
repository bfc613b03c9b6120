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


class FrozenColumn:
    """One reader. It keeps the segment and the columns below it alive; a segment knows its columns weakly."""

    __slots__ = ("__weakref__", "number", "segment")

    def __init__(self, segment: Segment, number: int) -> None:
        self.segment = segment
        self.number = number

    def read(self, row: int) -> Any:
        raise NotImplementedError

    def ticket(self, view: type, rows: object) -> tuple[Any, ...]:
        return revive, (view, *self.segment.address(), self.number, rows)


def column(segment: Segment, number: int) -> Any:
    found = segment.columns.get(number)
    if found is None:
        kind, *arguments = segment.contents[number]
        found = segment.columns[number] = KINDS[kind](segment, number, *arguments)
    return found


def revive(view: Callable[[Any, Any], Any], token: bytes, places: Any, number: int, rows: Any) -> Any:
    """Pickle calls this by name: a view again, over the memory of the ticket."""
    return view(column(reopen(token, places), number), rows)


class Nothing(FrozenColumn):
    __slots__ = ()

    def read(self, row: int) -> None:
        return None


class Numbers(FrozenColumn):
    __slots__ = ("_table", "read")

    def __init__(self, segment: Segment, number: int, table: Array) -> None:
        super().__init__(segment, number)
        self._table = segment.table(table)
        self.read = self._table.__getitem__  # type: ignore[assignment, method-assign]  # nothing around it: it is hot


class Complexes(FrozenColumn):
    __slots__ = ("_table",)

    def __init__(self, segment: Segment, number: int, table: Array) -> None:
        super().__init__(segment, number)
        self._table = segment.table(table)

    def read(self, row: int) -> complex:
        return complex(self._table[2 * row], self._table[2 * row + 1])


class Bytes(FrozenColumn):
    __slots__ = ("_memory", "_offsets")

    def __init__(self, segment: Segment, number: int, offsets: Array) -> None:
        super().__init__(segment, number)
        self._memory = segment.memory
        self._offsets = segment.table(offsets)

    def read(self, row: int) -> Any:
        return self._memory[self._offsets[row] : self._offsets[row + 1]]


class Text(Bytes):
    __slots__ = ()

    def read(self, row: int) -> Any:
        return self._memory[self._offsets[row] : self._offsets[row + 1]].decode("utf-8", "surrogatepass")


class NumpyBytes(Bytes):
    __slots__ = ()

    def read(self, row: int) -> np.bytes_:
        return np.bytes_(super().read(row))


class NumpyText(Text):
    __slots__ = ()

    def read(self, row: int) -> np.str_:
        return np.str_(super().read(row))


class WideInts(Bytes):
    __slots__ = ()

    def read(self, row: int) -> int:
        return int.from_bytes(super().read(row), "little", signed=True)


class Scalars(FrozenColumn):
    __slots__ = ("_block",)

    def __init__(self, segment: Segment, number: int, dtype: str, start: int, count: int) -> None:
        super().__init__(segment, number)
        self._block = _block(segment, dtype, start, count)

    def read(self, row: int) -> Any:
        return self._block[row]


class Arrays(FrozenColumn):
    """Arrays of one dtype and number of axes. `offsets` and `shapes` are there only where the shapes differ."""

    __slots__ = ("_block", "_offsets", "_shapes")

    def __init__(
        self, segment: Segment, number: int, dtype: str, start: int, count: int, shapes: object, offsets: Array | None
    ) -> None:
        super().__init__(segment, number)
        self._block = _block(segment, dtype, start, count)
        self._shapes, self._offsets = _shapes(segment, shapes, offsets)

    def read(self, row: int) -> Any:
        start, stop, shape = _extent(row, self._shapes, self._offsets)
        return self._block[start:stop].reshape(shape)


class Tensors(FrozenColumn):
    """As arrays, and torch is imported when the first one is read.

    Torch has no read-only tensors, and a write to read-only memory kills the process: tensors look at the scratch
    mapping, where a write stays in this process.
    """

    __slots__ = ("_dtype", "_offsets", "_shapes", "_start")

    def __init__(
        self, segment: Segment, number: int, dtype: str, start: int, shapes: object, offsets: Array | None
    ) -> None:
        super().__init__(segment, number)
        self._dtype = dtype
        self._start = start
        self._shapes, self._offsets = _shapes(segment, shapes, offsets)

    def read(self, row: int) -> Any:
        import torch

        start, stop, shape = _extent(row, self._shapes, self._offsets)
        dtype = getattr(torch, self._dtype)
        if start == stop:  # frombuffer refuses to make an empty one
            return torch.empty(shape, dtype=dtype)
        offset = self._start + start * dtype.itemsize
        return torch.frombuffer(self.segment.scratch(), dtype=dtype, count=stop - start, offset=offset).reshape(shape)


class Lists(FrozenColumn):
    __slots__ = ("_elements", "_offsets")
    view: type[SharedList] | type[SharedTuple] = SharedList

    def __init__(self, segment: Segment, number: int, offsets: Array, elements: int) -> None:
        super().__init__(segment, number)
        self._offsets = segment.table(offsets)
        self._elements = column(segment, elements)

    def read(self, row: int) -> Any:
        return self.view(self._elements, range(self._offsets[row], self._offsets[row + 1]))


class Tuples(Lists):
    __slots__ = ()
    view = SharedTuple


class TupleRows(FrozenColumn):
    __slots__ = ("_places",)

    def __init__(self, segment: Segment, number: int, places: list[int]) -> None:
        super().__init__(segment, number)
        self._places = [column(segment, place) for place in places]

    def read(self, row: int) -> tuple[Any, ...]:
        return tuple([place.read(row) for place in self._places])


class NamedRows(TupleRows):
    __slots__ = ("_name",)

    def __init__(self, segment: Segment, number: int, module: str, name: str, places: list[int]) -> None:
        super().__init__(segment, number, places)
        self._name = (module, name)

    def read(self, row: int) -> tuple[Any, ...]:
        made: tuple[Any, ...] = named(*self._name)._make(super().read(row))
        return made


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


class SameColumn(FrozenColumn):
    __slots__ = ("_distinct", "_table")

    def __init__(self, segment: Segment, number: int, table: Array, distinct: int) -> None:
        super().__init__(segment, number)
        self._table = segment.table(table)
        self._distinct = column(segment, distinct)

    def read(self, row: int) -> Any:
        return self._distinct.read(self._table[row])


class Union(FrozenColumn):
    __slots__ = ("_members", "_rows", "_tags")

    def __init__(self, segment: Segment, number: int, tags: Array, rows: Array, members: list[int]) -> None:
        super().__init__(segment, number)
        self._tags = segment.table(tags)
        self._rows = segment.table(rows)
        self._members = [column(segment, member) for member in members]

    def read(self, row: int) -> Any:
        return self._members[self._tags[row]].read(self._rows[row])


KINDS: dict[str, Callable[..., FrozenColumn]] = {
    "none": Nothing,
    "number": Numbers,
    "complex": Complexes,
    "wide": WideInts,
    "text": Text,
    "bytes": Bytes,
    "numpy text": NumpyText,
    "numpy bytes": NumpyBytes,
    "scalar": Scalars,
    "array": Arrays,
    "tensor": Tensors,
    "list": Lists,
    "tuple": Tuples,
    "row": TupleRows,
    "named row": NamedRows,
    "record": Records,
    "map": Maps,
    "same": SameColumn,
    "union": Union,
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
    """A class by its names."""
    return operator.attrgetter(name)(sys.modules.get(module) or importlib.import_module(module))


def _block(segment: Segment, dtype: str, start: int, count: int) -> Any:
    form = np.lib.format.descr_to_dtype(ast.literal_eval(dtype))
    if count * form.itemsize == 0:  # frombuffer refuses to make an empty one
        return np.frombuffer(b"", np.uint8).view(form) if form.itemsize else np.empty(count, form)
    return np.frombuffer(segment.memory, form, count, start)


def _shapes(segment: Segment, shapes: Any, offsets: Array | None) -> tuple[Any, Any]:
    return (shapes, None) if offsets is None else (segment.table(shapes), segment.table(offsets))


def _extent(row: int, shapes: Any, offsets: Any) -> tuple[int, int, Any]:
    """Where a row lies among the elements of all rows, and its shape."""
    if offsets is None:
        size = prod(shapes)
        return row * size, (row + 1) * size, shapes
    axes = len(shapes) // (len(offsets) - 1)
    return offsets[row], offsets[row + 1], tuple(shapes[row * axes : (row + 1) * axes])
