"""Hostile Parquet, Arrow and ArrayRecord files, in each codec: sizes that cannot be right, and damage."""

import io
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from tests.security.case import GIGABYTE, Case, file

ROWS = 10_000
BYTES = 8 * ROWS
"""Of the one column, unpacked."""


def table() -> pa.Table:
    return pa.table({"x": np.arange(ROWS)})


def varint(number: int) -> bytes:
    """A number as headers of Parquet pages hold it."""
    found, number = b"", 2 * number
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """One of these numbers, and where it ends."""
    end = next(i for i in range(at, len(data)) if data[i] < 128) + 1
    return sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end])) // 2, end


def parquet(codec: str, says: int) -> bytes:
    """A file of one page, whose header says how many bytes it has unpacked; all that follows lies where it lay."""
    out = io.BytesIO()
    pq.write_table(table(), out, compression=codec, use_dictionary=False, write_statistics=False)
    data = out.getvalue()
    page_end = 4 + pq.ParquetFile(out).metadata.row_group(0).column(0).total_compressed_size
    at = data.index(b"\x15\x00\x15", 4) + 3  # behind the type of the page: its size unpacked, and its size
    _, end = read_varint(data, at)
    size, behind = read_varint(data, end + 1)
    longer = len(varint(says)) - (end - at)
    content = (data[behind:page_end] + bytes(max(0, -longer)))[: page_end - behind - longer]
    changed = data[:at] + varint(says) + data[end : end + 1] + varint(size - longer) + content + data[page_end:]
    assert len(changed) == len(data)
    return changed


def arrow(codec: str, says: int) -> bytes:
    """A file of one batch, whose buffer says how many bytes it has unpacked."""
    out = io.BytesIO()
    whole = table()
    with ipc.new_file(out, whole.schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(whole)
    data = out.getvalue()
    size = struct.pack("<q", BYTES)
    assert data.count(size) == 1
    return data.replace(size, struct.pack("<q", says))


def array_record(options: str, change: Callable[[bytearray], bytes | bytearray]) -> bytes:
    from array_record.python import array_record_module as module

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "a.array_record"))
        writer = module.ArrayRecordWriter(path, options)
        for number in range(1000):
            writer.write(bytes([number % 7]) * 1000)
        writer.close()
        return bytes(change(bytearray(Path(path).read_bytes())))


def scratched(data: bytearray) -> bytearray:
    """With other bytes in the middle of the first records."""
    data[64 * 1024 + 60 : 64 * 1024 + 64] = b"\xff" * 4  # (before lies the header of the file)
    return data


PARQUET = ("snappy", "gzip", "brotli", "zstd", "lz4")
LARGER, SMALLER = 2 * GIGABYTE, 5
SIZES = {"exabytes": 2**62, "4 GB": 4 * GIGABYTE, "a negative number of bytes": -5}
RECORDS = ("group_size:1", *(f"group_size:100,{codec}" for codec in ("uncompressed", "snappy", "brotli", "zstd")))

CASES = [
    *(
        Case(
            "parquet",
            codec,
            f"a page that says it has {says} bytes",
            file("evil.parquet", lambda codec=codec, says=says: parquet(codec, says)),
            "Pipe.parquet(path)",
        )
        for codec in PARQUET
        for says in (LARGER, SMALLER)
    ),
    Case(
        "parquet",
        "none",
        "a page that says it has 2 GB",
        file("evil.parquet", lambda: parquet("none", LARGER)),
        "Pipe.parquet(path)",
    ),
    *(
        Case(
            "arrow",
            codec,
            f"a column that says it has {attack}",
            file("evil.arrow", lambda codec=codec, says=says: arrow(codec, says)),
            "Pipe.arrow(path)",
        )
        for codec in ("lz4", "zstd")
        for attack, says in SIZES.items()
    ),
    *(
        Case(
            "arrayrecord",
            options.rpartition(",")[2],
            attack,
            file("evil.array_record", lambda options=options, change=change: array_record(options, change)),
            "Pipe.stored(path)",
            "damaged",
        )
        for options in RECORDS
        for attack, change in {
            "records that are scratched": scratched,
            "cut off": lambda data: data[: len(data) // 2],
        }.items()
    ),
]
