"""TFRecord: the records of a file, and the features of a record, read from their bytes.

    record    length (8 bytes) · check of the length (4) · data · check of the data (4)
    Example          1: Features
    SequenceExample  1: Features (context)   2: FeatureLists
    Features         1: map of name -> Feature
    FeatureLists     1: map of name -> FeatureList;   FeatureList  1: Feature, repeated
    Feature          1: BytesList | 2: FloatList | 3: Int64List, each with  1: value, repeated or packed

The data is protocol-buffer wire format: fields of (number, type, value). Only what these messages use is read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.sources.crc32c import stored_crc
from headrace.sources.limit import UNLIMITED, VALUE, check_limit, exactly, limit_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
BYTES, FLOATS, INTEGERS = 1, 2, 3
LONGEST = 10
"""Bytes of the longest varint."""
PIECE = 1 << 20
"""Bytes of packed numbers that are looked at together."""
_CONTINUED = bytes(range(0x80, 0x100))
"""Bytes of a varint that are followed by another one."""


def records(stream: object, path: str) -> Iterator[bytes]:
    """The data of each record; a damaged or cut file is an error."""
    number = 0
    while True:
        size = exactly(stream, 8)
        if not size:
            return
        where = f"(record {number} of {path})"
        if len(size) < 8:
            raise RuntimeError(f"Invalid tfrecord file: failed to read the record size. {where}")
        _check(size, exactly(stream, 4), f"start token. {where}")
        count = int.from_bytes(size, "little")
        check_limit(count, limit_of(stream), f"record {number} of {path}")
        data = exactly(stream, count)
        if len(data) < count:
            raise RuntimeError(f"Invalid tfrecord file: failed to read the record. {where}")
        _check(data, exactly(stream, 4), f"end token. {where}")
        yield data
        number += 1


def _check(data: bytes, token: bytes, what: str) -> None:
    if len(token) < 4:
        raise RuntimeError(f"Invalid tfrecord file: failed to read the {what}")
    if stored_crc(data) != token:
        raise RuntimeError(f"Invalid tfrecord file: the check sum differs at the {what}")


class _Budget:
    """How many values a record may have: in a damaged one, each two bytes can be one."""

    def __init__(self, limit: int, path: str) -> None:
        self._limit = limit
        self._path = path
        self._taken = 0

    def take(self, count: int = 1) -> None:
        self._taken += count
        check_limit(VALUE * self._taken, self._limit, f"an example of {self._path}")


def features(record: bytes, limit: int = UNLIMITED, path: str = "") -> dict[str, Any]:
    """The features of an Example, or of a SequenceExample: arrays, lists of bytes, and lists of these.

    `limit`: of the memory that they take, if the file `path` is being unpacked.
    """
    out: dict[str, Any] = {}
    budget = _Budget(limit, path)
    for number, value in _fields(record, budget):
        if number == 1:
            for name, feature in _entries(value, budget):
                out[name] = _feature(feature, budget)
        elif number == 2:
            for name, several in _entries(value, budget):
                out[name] = [_feature(feature, budget) for n, feature in _fields(several, budget) if n == 1]
    return out


def _entries(data: bytes, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    """The entries of a map of messages by name."""
    for number, entry in _fields(data, budget):
        if number == 1:
            parts = dict(_fields(entry, budget))
            yield parts.get(1, b"").decode(), parts.get(2, b"")


def _feature(data: bytes, budget: _Budget) -> Any:
    import numpy as np

    for kind, values in _fields(data, budget):
        if kind == BYTES:
            return [value for number, value in _fields(values, budget) if number == 1]
        if kind == FLOATS:
            packed = b"".join(value for number, value in _fields(values, budget) if number == 1)
            return np.frombuffer(packed, "<f4").astype(np.float32)
        if kind == INTEGERS:
            loose: list[int] = []
            parts = []
            for number, value in _fields(values, budget):
                if number == 1 and isinstance(value, int):
                    loose.append(value)
                elif number == 1:
                    parts += [np.array(loose, np.uint64), _varints(value, budget)]
                    loose = []
            return np.concatenate([*parts, np.array(loose, np.uint64)]).view(np.int64)
    return None


def _fields(data: bytes, budget: _Budget) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: an int for a varint, bytes for everything else."""
    at, end = 0, len(data)
    while at < end:
        budget.take()
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == LENGTH:
            size, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise RuntimeError(f"Invalid tfrecord example: wire type {kind} at byte {at}")
        if at + size > end:
            raise RuntimeError(f"Invalid tfrecord example: a field ends {at + size - end} bytes behind the record")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while shift < 7 * LONGEST:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
    except IndexError:
        raise RuntimeError("Invalid tfrecord example: a number is cut off") from None
    raise RuntimeError(f"Invalid tfrecord example: a number has more than {LONGEST} bytes")


def _varints(data: bytes, budget: _Budget) -> "NDArray[np.uint64]":
    """Numbers one behind the other, many at once: one by one, 30 MB of them would take 8 seconds and a gigabyte."""
    import numpy as np

    count = len(data.translate(None, _CONTINUED))
    budget.take(count)
    every = np.frombuffer(data, np.uint8)
    if count == len(every):
        return every.astype(np.uint64)
    found = np.zeros(count, np.uint64)
    at = done = 0
    while at < len(every):
        piece = every[at : at + PIECE]
        last = np.flatnonzero(piece < 0x80)
        first = np.append(0, last[:-1] + 1)[: len(last)]
        sizes = last + 1 - first
        longest = int(sizes.max()) if len(last) else len(piece)
        if longest > LONGEST:
            raise RuntimeError(f"Invalid tfrecord example: a number has more than {LONGEST} bytes")
        if not len(last):
            raise RuntimeError("Invalid tfrecord example: a number is cut off")
        for place in range(longest):
            longer = np.flatnonzero(sizes > place)
            bits = (piece[first[longer] + place] & 0x7F).astype(np.uint64)
            found[done + longer] |= bits << np.uint64(7 * place)
        at, done = at + int(last[-1]) + 1, done + len(last)
    return found
