"""MDS shards, as MosaicML Streaming writes them (version 2): samples are dicts of columns.

    | number of samples | offsets | JSON: names, encodings and sizes of the columns | samples |
    sample: the sizes of its columns of variable size, 4 bytes each, then the values of all columns

Encodings that could run code when they are read (`pkl`) are refused unless the files are trusted.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BadOption
from headrace.sources.bytes import ByteFile, DamagedFile, FileState, is_remote
from headrace.sources.open import open_path
from headrace.sources.stored.format import Spans, StoredFormat
from headrace.sources.stored.pickles import load_trusted
from headrace.sources.stored.spans import counted_table, spans_between

DTYPES = {
    8: "<u1", 9: "<i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4", 64: "<u8", 65: "<i8",
    66: "<f8",
}  # fmt: skip
"""Types of arrays by their codes."""
SCALARS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


class MdsColumn(NamedTuple):
    name: str
    encoding: str
    size: int | None
    """Bytes of every value, or None where it varies."""


@dataclass(frozen=True, slots=True)
class Mds(StoredFormat):
    trust: bool = False
    name = "mds"
    endings = (".mds",)
    scanned = False

    @classmethod
    def of(cls, files: tuple[str, ...], trust: bool) -> "Mds":
        return cls(trust)

    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        yield spans_between(counted_table(file), file)

    def decode(self, data: bytes, file: ByteFile, start: int) -> dict[str, Any]:
        columns = _columns(file)
        varying = sum(column.size is None for column in columns)
        sizes = iter(np.frombuffer(data[: 4 * varying], "<u4").tolist())
        at = 4 * varying
        sample = {}
        for column in columns:
            size = next(sizes) if column.size is None else column.size
            if at + size > len(data):
                raise DamagedFile(
                    f"{file.path} is damaged: column {column.name!r} of the sample at byte {start} is cut off"
                )
            sample[column.name] = decoded(data[at : at + size], column.encoding, self.trust)
            at += size
        return sample


def shards(folder: str) -> tuple[str, ...] | None:
    """The shards of a data set, in the order of its index; None if there is no index."""
    path = os.path.join(folder, "index.json")
    try:
        with open_path(path) as index:
            content = index.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        listed = json.loads(content)["shards"]
        found = [(shard["raw_data"]["basename"], _packed_name(shard.get("zip_data"))) for shard in listed]
        outside = next((name for name, _ in found if os.path.isabs(name) or ".." in Path(name).parts), None)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is not the index of an MDS data set") from error
    if outside is not None:
        raise DamagedFile(f"{path} names a file outside its folder: {outside}; do not use this data set")
    return tuple(_existing(os.path.join(folder, name), packed) for name, packed in found)


def _packed_name(packed: Mapping[str, str] | None) -> str | None:
    """The name of a shard in its compressed form, if there is one."""
    return Path(packed["basename"]).name if packed else None


def _existing(path: str, packed: str | None) -> str:
    """The path of a shard, unless it is there in its compressed form only."""
    if packed and not is_remote(path) and not os.path.exists(path):
        folder, name = os.path.split(path)
        raise BadOption(f"{os.path.join(folder, packed)} is compressed: decompress it to {name}")
    return path


_known: dict[tuple[str, FileState], tuple[MdsColumn, ...]] = {}
"""The columns of shards that were read before."""
MANY = 4096
"""Shards whose columns are remembered."""


def _columns(file: ByteFile) -> tuple[MdsColumn, ...]:
    known = _known.get((file.path, file.state))
    if known is not None:
        return known
    offsets = counted_table(file)
    head = 4 * (len(offsets) + 1)
    try:
        header = json.loads(bytes(file.pread(head, int(offsets[0]) - head)))
        columns = zip(header["column_names"], header["column_encodings"], header["column_sizes"], strict=True)
        found = tuple(MdsColumn(name, encoding, size or None) for name, encoding, size in columns)
        if not all(column.size is None or (type(column.size) is int and column.size > 0) for column in found):
            raise ValueError("the size of a column is no number of bytes")
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{file.path} is damaged: what it says about its columns cannot be read ({error})") from None
    if len(_known) >= MANY:
        _known.clear()
    _known[file.path, file.state] = found
    return found


def decoded(data: bytes, encoding: str, trust: bool) -> Any:
    """One value of a column."""
    kind, *parts = encoding.split(":")
    if kind in SCALARS:
        return np.frombuffer(data, np.dtype(kind).newbyteorder("<"))[0].astype(kind)
    if kind == "ndarray":
        return _array(data, *parts)
    if kind in PLAIN:
        return PLAIN[kind](data)
    if kind == "pkl":
        return load_trusted(data, trust, "an MDS column of encoding 'pkl'")
    raise BadOption(
        f"MDS columns of encoding {encoding!r} cannot be read; those that can: {', '.join([*PLAIN, *SCALARS])}"
    )


PLAIN: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes, "str": bytes.decode, "int": partial(int.from_bytes, byteorder="little", signed=True),
    "str_int": int, "str_float": float, "json": json.loads, "jpeg": bytes, "png": bytes,
}  # fmt: skip
"""Pictures stay as they are stored: `Pipe.decode()` makes arrays of them."""


def _array(data: bytes, dtype: str = "", shape: str = "") -> Any:
    """An array. Its type and shape are in the encoding, or in front of the values."""
    at = 0
    if dtype:
        kind = np.dtype(dtype).newbyteorder("<")
    else:
        kind = np.dtype(DTYPES[data[0]])
        at = 1
    if shape:
        sides = tuple(int(side) for side in shape.split(","))
    else:
        dimensions, width = data[at] >> 2, 1 << (data[at] & 3)
        sides = tuple(np.frombuffer(data[at + 1 : at + 1 + dimensions * width], f"<u{width}").tolist())
        at += 1 + dimensions * width
    return np.frombuffer(data[at:], kind).reshape(sides)
