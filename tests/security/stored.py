"""Hostile files that are read by position, and indices beside them: sizes, counts and names that cannot be right."""

import json
import struct
from pathlib import Path
from typing import Any

from tests.security.case import Case, file
from tests.security.compressed import example, field, record

# --- MDS --------------------------------------------------------------------------------------------------------------


def shard(
    columns: dict[str, Any] | None = None, count: int = 1, offsets: list[int] | None = None, data: bytes = b""
) -> bytes:
    """A shard of MDS with one column of text; what its header says may be anything."""
    about = json.dumps(columns or {"column_names": ["x"], "column_encodings": ["str"], "column_sizes": [None]}).encode()
    table = 4 * (1 + len(offsets or [0, 0]))
    begin = table + len(about)
    places = offsets or [begin, begin + len(data)]
    return struct.pack("<I", count) + struct.pack(f"<{len(places)}I", *places) + about + data


GOOD = shard(data=struct.pack("<I", 5) + b"right")


def mds(basename: str, zipped: object = None) -> Any:
    """A data set whose index has this name for its only shard. A shard lies outside of its folder, too."""

    def write(folder: Path) -> Path:
        (folder / "outside.mds").write_bytes(GOOD)
        inside = folder / "evil"
        inside.mkdir()
        (inside / "shard.mds").write_bytes(GOOD)
        name = basename.replace("{folder}", str(folder))
        about = {"raw_data": {"basename": name}, "zip_data": zipped and {"basename": zipped}}
        (inside / "index.json").write_text(json.dumps({"version": 2, "shards": [about]}))
        return inside

    return write


def columns(**more: Any) -> dict[str, Any]:
    return {"column_names": ["x"], "column_encodings": ["str"], "column_sizes": [None], **more}


NAMES = {
    "an absolute name": "{folder}/outside.mds",
    "a name with ..": "../outside.mds",
    "a name with .. inside": "evil/../../outside.mds",
}
SHARDS = {
    "4 billion samples": shard(count=2**32 - 1),
    "samples that go back": shard(offsets=[500, 100], data=bytes(1000)),
    "a sample after the end": shard(offsets=[88, 2**32 - 1]),
    "a column of 4 GB": shard(data=struct.pack("<I", 2**32 - 1) + b"x"),
    "a column of a negative size": shard(columns(column_sizes=[-(2**40)]), data=b"abcd"),
    "a column whose size is a word": shard(columns(column_sizes=["many"]), data=b"abcd"),
    "an array of exabytes": shard(
        columns(column_encodings=["ndarray:float64:1000000,1000000,1000000"]), data=struct.pack("<I", 8) + bytes(8)
    ),
    "an array of negative sides": shard(
        columns(column_encodings=["ndarray:float64:-4,-4"]), data=struct.pack("<I", 8) + bytes(8)
    ),
    "an array of unknown type": shard(columns(column_encodings=["ndarray"]), data=struct.pack("<I", 8) + b"\xff" * 8),
    "a pickle": shard(columns(column_encodings=["pkl"]), data=struct.pack("<I", 5) + b"cos\nx"),
    "a document of brackets": shard(
        columns(column_encodings=["json"]), data=struct.pack("<I", 100_000) + b"[" * 100_000
    ),
    "a number of a million digits": shard(
        columns(column_encodings=["str_int"]), data=struct.pack("<I", 10**6) + b"9" * 10**6
    ),
}

# --- the others -------------------------------------------------------------------------------------------------------


def with_index(name: str, content: bytes, index: bytes) -> Any:
    """A file and, beside it, an index of what it holds."""

    def write(folder: Path) -> Path:
        (folder / f"{name}.index").write_bytes(index)
        return file(name, lambda: content)(folder)

    return write


def megatron(head: bytes, tail: bytes) -> Any:
    def write(folder: Path) -> Path:
        (folder / "evil.idx").write_bytes(b"MMIDIDX\x00\x00" + head + tail)
        return file("evil.bin", lambda: bytes(100))(folder)

    return write


def varint_record(number: bytes) -> bytes:
    """An Example with one number of the wire format."""
    return record(example(3, field(1, number)))


STORED: dict[str, tuple[str, Any, str]] = {
    "tfrecord: a record of exabytes": (
        "evil.tfrecord",
        lambda: record(b"", size=2**62),
        "cut off|failed to read the record",
    ),
    "tfrecord: a number of 200 kB": (
        "evil.tfrecord",
        lambda: varint_record(b"\xff" * 200_000 + b"\1"),
        "more than 10 bytes",
    ),
    "tfrecord: a tag of 200 kB": ("evil.tfrecord", lambda: record(b"\xff" * 200_000 + b"\1"), "more than 10 bytes"),
    "tfrecord: a size of 200 kB": (
        "evil.tfrecord",
        lambda: record(b"\x0a" + b"\xff" * 200_000 + b"\1"),
        "more than 10 bytes",
    ),
    "tfrecord: a field after the end": (
        "evil.tfrecord",
        lambda: record(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        "behind the record|after the record",
    ),
    "tfrecord: a number that is cut off": ("evil.tfrecord", lambda: varint_record(b"\xff"), "cut off"),
    "jsonl: a document of brackets": ("evil.jsonl", lambda: b"[" * 1_000_000 + b"\n", "recursion"),
    "jsonl: a number of a million digits": ("evil.jsonl", lambda: b"9" * 1_000_000 + b"\n", "digit"),
}
INDICES = {
    "an index of exabytes": json.dumps(
        {"version": 3, "format": "jsonl", "size": 2, "changed": 0, "count": 2**60, "upto": 2, "sum": 0, "check": 0}
    )
    .encode()
    .ljust(512),
    "an index that is none": b"\xff" * 512,
}

CASES = [
    *(
        Case("mds", "plain", attack, mds(name), "Pipe.stored(path)", "outside its folder")
        for attack, name in NAMES.items()
    ),
    Case("mds", "plain", "a compressed shard outside", mds("gone.mds", "../../outside.mds.zstd"), "Pipe.stored(path)"),
    *(
        Case("mds", "plain", f"a compressed shard called {name!r}", mds("gone.mds", name), "Pipe.stored(path)", "index")
        for name in (5, [1])
    ),
    *(
        Case(
            "tfrecord",
            "plain",
            f"numbers without end, {len(number)} bytes each ({way})",
            file(
                "evil.tfrecord",
                lambda number=number: record(example(3, field(1, number * (30_000_000 // len(number))))),
            ),
            read,
            gives=[{"a": f"int64[{30_000_000 // len(number)}]"}],
        )
        for number in (b"\1", b"\x81\1", b"\xff" * 9 + b"\1")
        for way, read in {"by position": "Pipe.stored(path)", "as a stream": "Pipe.tfrecords(path)"}.items()
    ),
    *(
        Case("mds", "plain", attack, file("evil.mds", lambda data=data: data), "Pipe.stored(path)")
        for attack, data in SHARDS.items()
    ),
    *(
        Case(attack.split(":")[0], "plain", f"{attack} ({way})", file(name, make), read, says)
        for attack, (name, make, says) in STORED.items()
        for way, read in {
            "by position": "Pipe.stored(path)",
            "as a stream": "Pipe.tfrecords(path)" if name.endswith("tfrecord") else "Pipe.jsonl(path)",
        }.items()
    ),
    *(
        Case("jsonl", "plain", attack, with_index("evil.jsonl", b"1\n", index), "Pipe.stored(path)", "remove")
        for attack, index in INDICES.items()
    ),
    Case(
        "megatron",
        "plain",
        "an index of exabytes",
        megatron(struct.pack("<QBQQ", 1, 4, 2**60, 1), b""),
        "Pipe.stored(path)",
        "evil.idx",
    ),
    Case(
        "megatron",
        "plain",
        "a sequence after the end",
        megatron(struct.pack("<QBQQ", 1, 4, 1, 1), struct.pack("<iqq", 2**30, 0, 0)),
        "Pipe.stored(path)",
        "outside",
    ),
    Case(
        "megatron",
        "plain",
        "a sequence of a negative length",
        megatron(struct.pack("<QBQQ", 1, 4, 1, 1), struct.pack("<iqq", -5, 0, 0)),
        "Pipe.stored(path)",
        "outside",
    ),
    *(
        Case(
            kind,
            "plain",
            attack,
            megatron(struct.pack("<QBQQ", 1, 4, len(places), 1), b"".join((*sizes, *offsets))),
            read,
            "outside",
        )
        for attack, places in {
            "a sequence before the start": [(5, -8)],
            "a sequence before the start, among others": [(5, 0), (5, -8), (5, 0)],
            "a negative length among others": [(5, 0), (-5, 40), (5, 0)],
            "a sequence at the last byte there can be": [(5, 2**63 - 8)],
        }.items()
        for kind, read in {"megatron": "Pipe.stored(path)", "tokens": "Pipe.tokens(path)"}.items()
        for sizes, offsets in [
            ([struct.pack("<i", size) for size, _ in places], [struct.pack("<q", offset) for _, offset in places])
        ]
    ),
    Case(
        "tokens",
        "plain",
        "an index of exabytes",
        megatron(struct.pack("<QBQQ", 1, 4, 2**60, 1), b""),
        "Pipe.tokens(path)",
        "evil.idx",
    ),
]
