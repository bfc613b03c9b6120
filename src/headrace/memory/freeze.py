"""Writes a Python object into a segment: see `layout` for its form.

Work goes column by column, not object by object: a list of records is taken apart into one list per key, and each of
those is converted by a few calls that loop in C. Beside the object, this needs one list of references a level.

An object that is referred to from many places is written once where that halves a column or better, so the frozen
form of a graph is never much larger than the graph.

Only the exact types are taken: a subclass may have attributes, which would be lost silently. The error names the place
of the object; it is searched for only then.
"""

import reprlib
import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any

import numpy as np

from headrace.memory.layout import hashes_stably, named, stable_hash
from headrace.memory.segment import Array, Segment, SegmentWriter

DEEPEST = 50
SHORT_TUPLE = 16
"""A tuple of up to so many items comes back as a tuple, a longer one as a SharedTuple."""
MOST_KEYS = 64
MOST_RECORDS = 16
"""Dicts of one column are records while they have few keys and few different sets of keys; else they are maps."""

CHUNK = 1 << 16
ALIGN = 64

Write = Callable[[Sequence[Any], int], int]
Label = Callable[[Any], Any]
TAKEN = "share() takes lists, tuples, dicts, str, bytes, numbers, None, numpy arrays and torch tensors on the CPU"


class Refused(Exception):
    """One object, `culprit`, cannot be frozen."""

    def __init__(self, culprit: object, why: str) -> None:
        super().__init__(why)
        self.culprit = culprit


def freeze(obj: object) -> Segment:
    writer = SegmentWriter()
    try:
        freezer = Freezer(writer)
        freezer.column([obj], 0)
        return writer.finish(freezer.contents)
    except Refused as refused:
        writer.discard()
        raise TypeError(f"{locate(obj, refused.culprit)} {refused}") from None
    except BaseException:
        writer.discard()
        raise


class Freezer:
    """Writes columns. `contents` gets one entry for each, after the entries of the columns that it refers to: that of
    the whole object is the last."""

    def __init__(self, writer: SegmentWriter) -> None:
        self.contents: list[list[Any]] = []
        self._writer = writer

    def column(self, values: Sequence[Any], depth: int) -> int:
        """Write values of any types; returns the number of their column."""
        return self._split(values, depth, type, self._one_type) if values else self._add("none")

    def _one_type(self, values: Sequence[Any], depth: int) -> int:
        kind = type(values[0])
        freeze_kind, label = _writer(kind, values[0])
        write: Write = partial(freeze_kind, self)
        if label is not None:
            write = partial(self._split, label=label, write=write)
        if depth >= DEEPEST and isinstance(values[0], (list, tuple, dict)):
            raise Refused(values[0], f"is nested deeper than {DEEPEST} levels: does it contain itself?")
        if kind in (NoneType, bool, int, float, complex):
            return write(values, depth)
        # Are many rows one and the same object? (`values` keeps all of them alive, so an id is of one object only.)
        ids = np.fromiter(map(id, values), np.int64, len(values))
        if 2 * _count_distinct(ids) > len(ids):
            return write(values, depth)
        _, first, number = np.unique(ids, return_index=True, return_inverse=True)
        distinct = write([values[row] for row in first.tolist()], depth)
        return self._add("same", self._table(number), distinct)

    def _split(self, values: Sequence[Any], depth: int, label: Label, write: Write) -> int:
        """Write values with equal labels into one column each; with several, a column that says which row is where."""
        labels = dict.fromkeys(map(label, values))
        if len(labels) == 1:
            return write(values, depth)
        tag_of = {each: tag for tag, each in enumerate(labels)}
        tags = np.fromiter(map(tag_of.__getitem__, map(label, values)), np.int64, len(values))
        rows = np.empty_like(tags)
        members = []
        for tag in range(len(labels)):
            tagged = np.flatnonzero(tags == tag)
            rows[tagged] = np.arange(len(tagged))
            members.append(write([values[row] for row in tagged.tolist()], depth))
        return self._add("union", self._table(tags), self._table(rows), members)

    def _add(self, kind: str, *arguments: object) -> int:
        self.contents.append([kind, *arguments])
        return len(self.contents) - 1

    def _table(self, numbers: Any) -> Array:
        """Write a table of numbers: integers in the narrowest format that holds them, floats and bools as they are."""
        if numbers.dtype.kind in "iu" and len(numbers):
            low, high = int(numbers.min()), int(numbers.max())
            for form in (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32):
                if np.iinfo(form).min <= low and high <= np.iinfo(form).max:
                    numbers = numbers.astype(form)
                    break
        return numbers.dtype.char, self._writer.put(_raw(numbers), numbers.itemsize), len(numbers)

    def nothing(self, values: Sequence[None], depth: int) -> int:
        return self._add("none")

    def bools(self, values: Sequence[bool], depth: int) -> int:
        return self._add("number", self._table(np.frombuffer(bytes(values), np.bool_)))

    def ints(self, values: Sequence[int], depth: int) -> int:
        for form in ("q", "Q"):
            try:
                return self._add("number", self._table(np.frombuffer(array(form, values), form)))
            except OverflowError:
                continue
        return self._blobs("wide", values, _signed_bytes)

    def floats(self, values: Sequence[float], depth: int) -> int:
        return self._add("number", self._table(np.frombuffer(array("d", values), "d")))

    def complexes(self, values: Sequence[complex], depth: int) -> int:
        return self._add("complex", self._table(np.fromiter(values, np.complex128, len(values)).view("d")))

    def texts(self, values: Sequence[str], depth: int) -> int:
        kind = "text" if type(values[0]) is str else "numpy text"
        return self._blobs(kind, values, lambda value: value.encode("utf-8", "surrogatepass"))

    def byte_strings(self, values: Sequence[bytes], depth: int) -> int:
        return self._blobs("bytes" if type(values[0]) is bytes else "numpy bytes", values, bytes)

    def _blobs(self, kind: str, values: Sequence[Any], encode: Callable[[Any], bytes]) -> int:
        offsets = np.empty(len(values) + 1, np.int64)
        offsets[0] = self._writer.end
        for start in range(0, len(values), CHUNK):
            encoded = list(map(encode, values[start : start + CHUNK]))
            offsets[start + 1 : start + 1 + len(encoded)] = np.fromiter(map(len, encoded), np.int64, len(encoded))
            self._writer.put(b"".join(encoded))
        return self._add(kind, self._table(offsets.cumsum()))

    def lists(self, values: Sequence[list[Any]], depth: int) -> int:
        return self._elements("list", values, depth)

    def tuples(self, values: Sequence[tuple[Any, ...]], depth: int) -> int:
        if len(values[0]) > SHORT_TUPLE:
            return self._elements("tuple", values, depth)
        return self._add("row", self._items(values, depth))

    def named_tuples(self, values: Sequence[tuple[Any, ...]], depth: int) -> int:
        kind = type(values[0])
        try:
            found = named(kind.__module__, kind.__qualname__)
        except (ImportError, AttributeError):
            found = None
        if found is not kind:
            raise Refused(values[0], f"is {_a(kind)}, which cannot be imported. Define it at the top level of a module")
        for value in values:
            if getattr(value, "__dict__", None):
                raise Refused(value, f"is {_a(kind)} with attributes of its own, which would be lost. Make them fields")
        return self._add("named row", kind.__module__, kind.__qualname__, self._items(values, depth))

    def _items(self, values: Sequence[tuple[Any, ...]], depth: int) -> list[int]:
        """A column for each item of tuples of one length."""
        return [self.column(list(map(itemgetter(item), values)), depth + 1) for item in range(len(values[0]))]

    def _elements(self, kind: str, values: Sequence[Collection[Any]], depth: int) -> int:
        elements = self.column(list(chain.from_iterable(values)), depth + 1)
        return self._add(kind, self._table(_offsets(map(len, values), len(values))), elements)

    def dicts(self, values: Sequence[dict[Any, Any]], depth: int) -> int:
        if set(map(type, chain.from_iterable(values))) - {str}:
            return self._maps(values, depth)
        key_sets: set[tuple[str, ...]] = set()
        for start in range(0, len(values), CHUNK):
            key_sets.update(map(tuple, values[start : start + CHUNK]))
            if len(key_sets) > MOST_RECORDS:
                return self._maps(values, depth)
        if max(map(len, key_sets)) > MOST_KEYS:
            return self._maps(values, depth)
        return self._records(values, depth) if len(key_sets) == 1 else self._split(values, depth, tuple, self._records)

    def _records(self, values: Sequence[dict[str, Any]], depth: int) -> int:
        keys = list(values[0])
        return self._add("record", keys, [self.column(list(map(itemgetter(key), values)), depth + 1) for key in keys])

    def _maps(self, values: Sequence[dict[Any, Any]], depth: int) -> int:
        keys = list(chain.from_iterable(values))
        for key in keys:
            if not hashes_stably(key):
                raise Refused(
                    key, f"is {_a(type(key))} that cannot be looked up in shared memory. Use str, bytes or numbers"
                )
        offsets = _offsets(map(len, values), len(values))
        hashes = np.fromiter(map(stable_hash, keys), np.int64, len(keys))
        order = np.lexsort((hashes, np.repeat(np.arange(len(values)), np.diff(offsets))))
        tables = self._table(offsets), self._table(hashes[order]), self._table(order)
        key_column = self.column(keys, depth + 1)
        value_column = self.column(list(chain.from_iterable(map(dict.values, values))), depth + 1)
        return self._add("map", *tables, key_column, value_column)

    def scalars(self, values: Sequence[Any], depth: int) -> int:
        block = np.array(values, values[0].dtype)
        return self._add("scalar", _described(values[0]), self._writer.put(_raw(block), ALIGN), len(values))

    def arrays(self, values: Sequence[Any], depth: int) -> int:
        dtype, start = _described(values[0]), self._writer.put(b"", ALIGN)
        for value in values:
            self._writer.put(_raw(value))
        return self._add("array", dtype, start, sum(value.size for value in values), *self._shapes(values))

    def tensors(self, values: Sequence[Any], depth: int) -> int:
        for value in values:
            if why := _not_plain(value):
                raise Refused(value, f"is a tensor that {why}. Share tensor.detach().cpu().to_dense()")
        torch, start = sys.modules["torch"], self._writer.put(b"", ALIGN)
        for value in values:
            plain = value.resolve_conj().resolve_neg().contiguous()
            self._writer.put(plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else b"")
        return self._add("tensor", str(values[0].dtype).removeprefix("torch."), start, *self._shapes(values))

    def _shapes(self, values: Sequence[Any]) -> tuple[Any, Array | None]:
        """The shape that all have, and None; or a table of the shapes, and one of where each array starts."""
        shapes = set(map(attrgetter("shape"), values))
        if len(shapes) == 1:
            return list(shapes.pop()), None
        every = np.array([value.shape for value in values], np.int64)
        return self._table(every.ravel()), self._table(_offsets(every.prod(axis=1), len(values)))


WriteKind = Callable[[Freezer, Any, int], int]
WRITERS: dict[type, WriteKind] = {
    NoneType: Freezer.nothing,
    bool: Freezer.bools,
    int: Freezer.ints,
    float: Freezer.floats,
    complex: Freezer.complexes,
    str: Freezer.texts,
    np.str_: Freezer.texts,
    bytes: Freezer.byte_strings,
    np.bytes_: Freezer.byte_strings,
    list: Freezer.lists,
    dict: Freezer.dicts,
}


def _writer(kind: type, example: object) -> tuple[WriteKind, Label | None]:
    """What writes values of this type; and the label, where only values with equal labels go into one column."""
    if kind in WRITERS:
        return WRITERS[kind], None
    if kind is tuple:
        return Freezer.tuples, lambda value: min(len(value), SHORT_TUPLE + 1)
    if kind is np.ndarray:
        return Freezer.arrays, attrgetter("dtype", "ndim")
    if issubclass(kind, np.generic):
        return Freezer.scalars, attrgetter("dtype")
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Freezer.named_tuples, None
    if kind is getattr(sys.modules.get("torch"), "Tensor", None):
        return Freezer.tensors, attrgetter("dtype", "ndim")
    raise Refused(example, f"is {_a(kind)}. {TAKEN}: convert it first")


def _described(value: Any) -> str:
    dtype = value.dtype
    try:
        described: Any = None if dtype.hasobject else np.lib.format.dtype_to_descr(dtype)
        if described is not None and np.lib.format.descr_to_dtype(described) == dtype:
            return repr(described)
    except (TypeError, ValueError):
        pass  # numpy has no plain description of it: refused below
    raise Refused(
        value, f"has the dtype {dtype}, which cannot be shared: use one of plain numbers, dates or fixed strings"
    )


def _not_plain(tensor: Any) -> str | None:
    torch = sys.modules["torch"]
    if tensor.requires_grad:
        return "requires a gradient"
    if tensor.device.type != "cpu":
        return f"is on {tensor.device}"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "is sparse or quantized"
    return None


def _signed_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _raw(values: Any) -> Any:
    """The bytes of an array: as numbers, since not every dtype can be a buffer (dates)."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8) if values.nbytes else b""


def _offsets(lengths: Iterable[int], count: int) -> Any:
    offsets = np.zeros(count + 1, np.int64)
    offsets[1:] = np.fromiter(lengths, np.int64, count)
    return offsets.cumsum()


def _count_distinct(ids: Any) -> int:
    ids = np.sort(ids)
    return int(np.count_nonzero(ids[1:] != ids[:-1])) + 1


def _a(kind: type) -> str:
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"


def locate(root: object, culprit: object) -> str:
    """The way from `root` to the culprit, as Python code: `[17]['label'][2]`."""
    steps: list[str] = []
    levels = [iter([("", root)])]
    seen: set[int] = set()
    while levels:
        for step, part in levels[-1]:
            if part is culprit:
                return "".join([*steps, step]) or "the object"
            if isinstance(part, (list, tuple, dict)) and id(part) not in seen:
                seen.add(id(part))
                levels.append(_parts(part))
                steps.append(step)
                break
        else:
            levels.pop()
            del steps[-1:]
    raise LookupError("the object changed while it was being frozen")


def _parts(container: Any) -> Iterator[tuple[str, object]]:
    if isinstance(container, dict):
        for key, value in container.items():
            yield f" key {reprlib.repr(key)}", key
            yield f"[{reprlib.repr(key)}]", value
    elif hasattr(container, "_fields"):
        yield from ((f".{name}", part) for name, part in zip(container._fields, container, strict=True))
    else:
        yield from ((f"[{number}]", part) for number, part in enumerate(container))
