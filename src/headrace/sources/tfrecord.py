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
from typing import Any

from headrace.sources.crc32c import stored_crc

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
BYTES, FLOATS, INTEGERS = 1, 2, 3
PIECE = 16 << 20
"""Bytes that are read at a time."""


def records(stream: object, path: str) -> Iterator[bytes]:
    """The data of each record; a damaged or cut file is an error."""
    number = 0
    while True:
        size = _exactly(stream, 8)
        if not size:
            return
        where = f"(record {number} of {path})"
        if len(size) < 8:
            raise RuntimeError(f"Invalid tfrecord file: failed to read the record size. {where}")
        _check(size, _exactly(stream, 4), f"start token. {where}")
        count = int.from_bytes(size, "little")
        data = _exactly(stream, count)
        if len(data) < count:
            raise RuntimeError(f"Invalid tfrecord file: failed to read the record. {where}")
        _check(data, _exactly(stream, 4), f"end token. {where}")
        yield data
        number += 1


def _exactly(stream: Any, count: int) -> bytes:
    """That many bytes, fewer only at the end: a raw stream may give less than it is asked for.

    In pieces, because a damaged file may say any number, and no more memory is to be asked for than the file fills.
    """
    pieces: list[bytes] = []
    while count and (piece := stream.read(min(count, PIECE))):
        pieces.append(piece)
        count -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check(data: bytes, token: bytes, what: str) -> None:
    if len(token) < 4:
        raise RuntimeError(f"Invalid tfrecord file: failed to read the {what}")
    if stored_crc(data) != token:
        raise RuntimeError(f"Invalid tfrecord file: the check sum differs at the {what}")


def features(record: bytes) -> dict[str, Any]:
    """The features of an Example, or of a SequenceExample: arrays, lists of bytes, and lists of these."""
    out: dict[str, Any] = {}
    for number, value in _fields(record):
        if number == 1:
            for name, feature in _entries(value):
                out[name] = _feature(feature)
        elif number == 2:
            for name, several in _entries(value):
                out[name] = [_feature(feature) for n, feature in _fields(several) if n == 1]
    return out


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The entries of a map of messages by name."""
    for number, entry in _fields(data):
        if number == 1:
            parts = dict(_fields(entry))
            yield parts.get(1, b"").decode(), parts.get(2, b"")


def _feature(data: bytes) -> Any:
    import numpy as np

    for kind, values in _fields(data):
        if kind == BYTES:
            return [value for number, value in _fields(values) if number == 1]
        if kind == FLOATS:
            packed = b"".join(value for number, value in _fields(values) if number == 1)
            return np.frombuffer(packed, "<f4").astype(np.float32)
        if kind == INTEGERS:
            found = []
            for number, value in _fields(values):
                if number == 1:
                    found += [value] if isinstance(value, int) else _varints(value)
            return np.array(found, np.uint64).astype(np.int64)
    return None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: an int for a varint, bytes for everything else."""
    at, end = 0, len(data)
    while at < end:
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
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
    except IndexError:
        raise RuntimeError("Invalid tfrecord example: a number is cut off") from None


def _varints(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        found.append(value)
    return found
