"""Hostile content of compressed files: too much of it, lines and documents without end, headers that ask for memory."""

import lzma

from headrace.sources.crc32c import stored_crc
from tests.security.case import CODECS, ENDINGS, GIGABYTE, Case, file, packed

ZEROS = {
    "read whole": "opened(path).decompress()",
    "read whole from a stream that cannot seek": "passing(path).decompress()",
    "read into memory to travel": "[pickle.dumps(s) for _, s in opened(path).decompress()]",
    "read as lines": "opened(path).decompress().readlines()",
    "read as text": "opened(path).decompress().readlines(decode=True)",
    "read as UTF-16": "opened(path).decompress().readlines(decode=True, encoding='utf-16-le')",
    "read as CSV": "opened(path).decompress().parse_csv()",
    "read as JSON": "opened(path).decompress().parse_json_files()",
    "read as JSON lines": "opened(path).decompress().parse_jsonl()",
    "decoded": "Pipe.of([(path, s) for _, s in opened(path).decompress()]).decode(lambda ending, data: data)",
    "read as Parquet": "opened(path).decompress().load_parquet()",
}
"""What is done with 3 GB of zeros."""
TEXTS: dict[str, tuple[bytes, str]] = {
    "a line of lists": (b"[[]" + 60_000_000 // 3 * b",[]" + b"]", "opened(path).decompress().parse_jsonl()"),
    "a document of lists": (b"[[]" + 150_000_000 // 3 * b",[]" + b"]", "opened(path).decompress().parse_json_files()"),
    "a line of carriage returns": (b"a\r" * 60_000_000, "opened(path).decompress().readlines(decode=True)"),
    "a line of commas": (b"," * 60_000_000, "opened(path).decompress().parse_csv()"),
}
"""Content that takes far more memory when it is parsed."""


def record(data: bytes, *, size: int | None = None) -> bytes:
    """A record of TFRecord; its header may say another size."""
    length = (len(data) if size is None else size).to_bytes(8, "little")
    return length + stored_crc(length) + data + stored_crc(data)


def field(number: int, data: bytes) -> bytes:
    """A field of protocol buffers."""
    size, varint = len(data), b""
    while size > 127:
        varint, size = varint + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + varint + bytes([size]) + data


def example(kind: int, values: bytes) -> bytes:
    """An Example with one feature."""
    return field(1, field(1, field(1, b"a") + field(2, field(kind, values))))


RECORDS = {
    "a record that says it has 2 GB": lambda: (record(b"", size=2 * GIGABYTE)[:-4], 2 * GIGABYTE),
    "a record of 8 million numbers": lambda: (record(example(3, field(1, b"\1" * 8_000_000))),),
    "a record of 4 million texts": lambda: (record(example(1, b"\x0a\0" * 4_000_000)),),
}


def large_dictionary() -> bytes:
    """A file of lzma that says 3 GB are needed to unpack it."""
    whole = lzma.compress(b"x" * 100, lzma.FORMAT_ALONE)
    return whole[:1] + (3 << 30).to_bytes(4, "little") + whole[5:]


def _cases(codec: str) -> list[Case]:
    name = f"evil{ENDINGS[codec]}"
    zeros = file(name, lambda: packed(codec, 3 * GIGABYTE))
    found = [Case("content", codec, f"3 GB of zeros {how}", zeros, read, "max_bytes") for how, read in ZEROS.items()]
    found += [
        Case(
            "content",
            codec,
            "ten bytes of 3 GB",
            zeros,
            "[s.read(10) for _, s in opened(path).decompress()]",
            gives=["\0" * 10],
        ),
        Case(
            "content",
            codec,
            "cut off",
            file(name, lambda: packed(codec, b"content")[:-5]),
            ZEROS["read whole"],
            "cut off",
        ),
        Case(
            "content",
            codec,
            "damaged",
            file(name, lambda: packed(codec, b"content")[:-6] + b"abcdef"),
            ZEROS["read whole"],
            "damaged",
        ),
        Case(
            "content",
            codec,
            "more after its end",
            file(name, lambda: packed(codec, b"content") + b"abc"),
            ZEROS["read whole"],
            "damaged|cut off",
        ),
    ]
    found += [
        Case(
            "tfrecord",
            codec,
            attack,
            file(name, lambda make=make: packed(codec, *make())),
            "opened(path).decompress().load_from_tfrecord()",
            "max_bytes",
        )
        for attack, make in RECORDS.items()
    ]
    return found


CASES = [case for codec in CODECS for case in _cases(codec)]
CASES += [
    Case("text", "gzip", attack, file("evil.gz", lambda data=data: packed("gzip", data)), read, "max_bytes")
    for attack, (data, read) in TEXTS.items()
]
CASES += [
    Case(
        "content",
        "lzma",
        "a dictionary of 3 GB",
        file("evil.lzma", large_dictionary),
        ZEROS["read whole"],
        "emory.*unpack it by hand",
    ),
    Case(
        "content",
        "bzip2",
        "3 GB of zeros in load_from_bz2",
        file("evil.bz2", lambda: packed("bzip2", 3 * GIGABYTE)),
        "opened(path).load_from_bz2()",
        "max_bytes",
    ),
    Case(
        "content",
        "xz",
        "3 GB of zeros in load_from_xz",
        file("evil.xz", lambda: packed("xz", 3 * GIGABYTE)),
        "opened(path).load_from_xz()",
        "max_bytes",
    ),
]
