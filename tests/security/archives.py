"""Hostile archives: tar, zip, rar."""

import struct
import zlib
from collections.abc import Callable

from tests.security.case import BLOCK, CODECS, ENDINGS, GIGABYTE, Case, file, packed

END = bytes(1024)


# --- tar --------------------------------------------------------------------------------------------------------------


def header(
    name: str = "a.bin", size: int | bytes = 0, kind: bytes = b"0", sparse: bytes = b"", link: str = ""
) -> bytes:
    """A header of tar with a right check sum; a size in bytes is written as it is."""
    digits = (
        size if isinstance(size, bytes) else b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    )
    front = name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + digits + b"00000000000\0"
    back = kind + link.encode().ljust(100, b"\0") + b"ustar\x0000" + bytes(121)
    back = back[:230] + sparse.ljust(126, b"\0") if sparse else back
    both = (front + b" " * 8 + back).ljust(512, b"\0")
    return both[:148] + b"%06o\0 " % sum(both) + both[156:]


def pax(*records: bytes, kind: bytes = b"x") -> bytes:
    content = b"".join(records)
    return header("pax", len(content), kind) + content.ljust(-(-len(content) // 512) * 512, b"\0")


def record(key: str, value: str) -> bytes:
    text = f" {key}={value}\n".encode()
    length = len(text)
    while len(str(length)) + len(text) != length:
        length = len(str(length)) + len(text)
    return str(length).encode() + text


def member(name: str, data: bytes) -> bytes:
    return header(name, len(data)) + data.ljust(-(-len(data) // 512) * 512, b"\0")


GOOD = member("1.txt", b"right")
TARS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a negative size in octal": (lambda: GOOD + header(size=b"-0000001000\0") + END, "byte 1024: .*size or an offset"),
    "a negative size in binary": (
        lambda: GOOD + header(size=b"\xff" * 11 + b"\0") + END,
        "byte 1024: .*size or an off",
    ),
    "a negative size in PAX": (lambda: GOOD + pax(record("size", "-1536")) + header() + END, "byte 1024: .*b'-1536'"),
    "a huge size in PAX": (lambda: pax(record("size", "9" * 5000)) + header() + END, "byte 0: .*size or an offset"),
    "a size of exabytes": (lambda: header(size=2**62) + END, "byte 0: it is cut off|cut off, in a member"),
    "a size after the end": (lambda: GOOD + header(size=8 * GIGABYTE) + END, "cut off"),
    "a PAX record of length 0": (lambda: pax(b"0 size=1\n") + header() + END, "PAX header is damaged"),
    "a PAX record of a negative length": (lambda: pax(b"-9 size=1\n") + header() + END, "size or an offset"),
    "digits without end in PAX": (lambda: pax(b"1" * 900_000) + header() + END, "size or an offset|PAX header"),
    "a long name of gigabytes": (lambda: header(size=4 * GIGABYTE, kind=b"L") + bytes(2048), "headers .* more than"),
    "100,000 headers of one member": (lambda: header(kind=b"x") * 100_000 + header() + END, "headers .* more than"),
    "a map of a sparse file that goes back": (
        lambda: (
            header(
                kind=b"S",
                sparse=b"%011o\0%011o\0" % (4096, 512) + b"%011o\0%011o\0" % (0, 512) + bytes(49) + b"%011o\0" % 8192,
            )
            + END
        ),
        "not in order",
    ),
}
"""What is wrong, the archive, and what the error says."""
HOLES = header(kind=b"S", sparse=bytes(96) + b"\0" + b"\x80" + (8 * GIGABYTE).to_bytes(11, "big"))
"""A sparse file of nothing but holes."""
OUTSIDE = {
    "a name with ..": member("../../etc/passwd", b"x"),
    "a name with .. inside": member("a/../../../etc/passwd", b"x"),
}
LINKS = (
    header("a.txt", kind=b"2", link="/etc/passwd")
    + header("b.txt", kind=b"1", link="../../etc/passwd")
    + member("/etc/1.txt", b"absolute")
    + END
)
WAYS = {
    "stored": "Pipe.stored(path)",
    "stream": "Pipe.tar(path)",
    "shards": "Pipe.shards(path)",
    "passing": "passing(path).load_from_tar()",
}


def tar_cases() -> list[Case]:
    found = [
        Case("tar", "plain", f"{attack} ({way})", file("evil.tar", make), read, says)
        for attack, (make, says) in TARS.items()
        for way, read in WAYS.items()
    ]
    found += [
        Case(
            "tar",
            "plain",
            attack,
            file("evil.tar", lambda data=data: data + END),
            WAYS["stream"],
            "outside of the archive",
        )
        for attack, data in OUTSIDE.items()
    ]
    found += [
        Case(
            "tar",
            "plain",
            "links out of the archive",
            file("evil.tar", lambda: LINKS),
            "[s for _, s in Pipe.tar(path)]",
            gives=["absolute"],
        ),
        Case(
            "tar",
            "plain",
            "links out of the archive, by number",
            file("evil.tar", lambda: LINKS),
            "Pipe.stored(path)",
            gives=[{"__key__": "/etc/1", ".txt": "absolute"}],
        ),
        Case(
            "tar", "plain", "a sparse file of 8 GB", file("evil.tar", lambda: HOLES + END), WAYS["stream"], "max_bytes"
        ),
    ]
    for codec in CODECS:
        name = f"evil.tar{ENDINGS[codec]}"
        for way in ("stream", "shards", "passing"):
            found += [
                Case(
                    "tar",
                    codec,
                    f"a member of 4 GB ({way})",
                    file(name, lambda codec=codec: packed(codec, GOOD + header(size=4 * GIGABYTE), 2 * GIGABYTE)),
                    WAYS[way],
                    "max_bytes",
                ),
                Case(
                    "tar",
                    codec,
                    f"a long name of 2 GB ({way})",
                    file(name, lambda codec=codec: packed(codec, header(size=2 * GIGABYTE, kind=b"L"), 2 * GIGABYTE)),
                    WAYS[way],
                    "headers .* more than",
                ),
            ]
        found += [
            Case(
                "tar",
                codec,
                "one sample of 30 members of 90 MB",
                file(name, lambda codec=codec: packed(codec, *sample_of(30, 2 * BLOCK))),
                WAYS["shards"],
                "the sample 'a' .*max_bytes",
            ),
            Case(
                "tar",
                codec,
                "3 GB of zeros after the end",
                file(name, lambda codec=codec: packed(codec, GOOD + END, 3 * GIGABYTE)),
                "[s for _, s in Pipe.tar(path)]",
                gives=["right"],
            ),
            Case(
                "tar",
                codec,
                "cut off",
                file(name, lambda codec=codec: packed(codec, GOOD + END)[:-9]),
                WAYS["stream"],
                "cut off|damaged",
            ),
            Case(
                "tar",
                codec,
                "a member of 4 GB (TarFile)",
                file(name, lambda codec=codec: packed(codec, GOOD + header(size=4 * GIGABYTE), 2 * GIGABYTE)),
                "opened(path).decompress().load_from_tar()",
                "max_bytes",
            ),
            Case(
                "tar",
                codec,
                "a long name of 2 GB (TarFile)",
                file(name, lambda codec=codec: packed(codec, header(size=2 * GIGABYTE, kind=b"L"), 2 * GIGABYTE)),
                "opened(path).decompress()",
                "headers .* more than",
            ),
        ]
    found.append(
        Case(
            "tar",
            "plain",
            "a negative size (TarFile)",
            file("evil.tar", lambda: GOOD + pax(record("size", "-1536")) + header() + END),
            "[s.getnames() for _, s in opened(path).decompress()]",
            "negative size",
        )
    )
    found.append(
        Case(
            "tar",
            "zstd",
            "a codec that is not read",
            file("evil.tar.zst", lambda: b"\x28\xb5\x2f\xfd" + bytes(100)),
            WAYS["stream"],
            "zstd.*unpack it",
        )
    )
    return found


def sample_of(count: int, size: int) -> list[bytes | int]:
    """Members of zeros that are one sample."""
    parts: list[bytes | int] = []
    for number in range(count):
        parts += [header(f"a.{number}", size), size, bytes(-size % 512)]
    return parts


# --- zip --------------------------------------------------------------------------------------------------------------

DEFLATE, BZIP2, LZMA = 8, 12, 14


def zipped(method: int, data: bytes = b"", size: int = 0, name: str = "a.bin") -> bytes:
    """An archive with one member, whose compressed data are these; its header says what size it likes."""
    fields = struct.pack("<HHHHHLLLHH", 46, 0, method, 0, 33, zlib.crc32(data), len(data), size, len(name), 0)
    local = b"PK\3\4" + fields + name.encode() + data
    central = b"PK\1\2" + struct.pack("<H", 46) + fields + struct.pack("<HHHLL", 0, 0, 0, 0, 0) + name.encode()
    return local + central + struct.pack("<LHHHHLLH", 0x06054B50, 0, 0, 1, 1, len(central), len(local), 0)


def deflated(size: int) -> bytes:
    """Zeros."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * -(-size // BLOCK) + b"\3\0"


def with_directory_of(size: int) -> bytes:
    """An archive whose end says that its directory has so many bytes."""
    whole = bytearray(zipped(0))
    at = whole.rindex(b"PK\5\6")
    whole[at + 12 : at + 16] = struct.pack("<L", size)
    return bytes(whole)


def zip_cases() -> list[Case]:
    read = "opened(path).load_from_zip()"
    large = file("evil.zip", lambda: zipped(DEFLATE, deflated(2 * GIGABYTE), 2 * GIGABYTE))
    small = file("evil.zip", lambda: zipped(BZIP2, packed("bzip2", 3 * GIGABYTE), 3 * GIGABYTE))
    ten = "[s.read(10) for _, s in opened(path).load_from_zip()]"
    return [
        Case("zip", "deflate", "a member of 2 GB", large, read, "a.bin.*max_bytes"),
        Case(
            "zip", "deflate", "a member of 2 GB (passing)", large, "passing(path).load_from_zip()", "a.bin.*max_bytes"
        ),
        Case("zip", "bzip2", "a member of 3 GB in 3 kB", small, read, "a.bin.*max_bytes"),
        Case("zip", "bzip2", "ten bytes of a member of 3 GB", small, ten, gives=["\0" * 10]),
        Case(
            "zip",
            "lzma",
            "a codec that is not read",
            file("evil.zip", lambda: zipped(LZMA)),
            read,
            "method 14.*pack it",
        ),
        Case("zip", "plain", "a directory of 4 GB", file("evil.zip", lambda: with_directory_of(2**32 - 1)), read),
        Case(
            "zip",
            "plain",
            "a name with ..",
            file("evil.zip", lambda: zipped(0, name="../../a")),
            read,
            "outside of the arch",
        ),
        Case(
            "zip",
            "gzip",
            "3 GB in a stream that cannot seek",
            file("evil.zip.gz", lambda: packed("gzip", 3 * GIGABYTE)),
            "passing(path).decompress('gzip').load_from_zip()",
            "max_bytes",
        ),
    ]


# --- rar --------------------------------------------------------------------------------------------------------------


def rar(size: int, name: str = "a.bin") -> bytes:
    """An archive with one member that says it has so many bytes, and has five."""

    def block(kind: int, flags: int, body: bytes, data: bytes = b"") -> bytes:
        head = struct.pack("<BHH", kind, flags, 7 + len(body)) + body
        return struct.pack("<H", zlib.crc32(head) & 0xFFFF) + head + data

    body = struct.pack("<LLBLLBBHL", 5, size, 3, zlib.crc32(b"first"), 0x5A000000, 20, 0x30, len(name), 0x81A4)
    return (
        b"Rar!\x1a\x07\x00"
        + block(0x73, 0, bytes(6))
        + block(0x74, 0x8000, body + name.encode(), b"first")
        + block(0x7B, 0x4000, b"")
    )


def rar_cases() -> list[Case]:
    return [
        Case(
            "rar",
            "plain",
            "a member that says it has 4 GB",
            file("evil.rar", lambda: rar(2**32 - 1)),
            "opened(path).load_from_rar()",
            "Failed the read enough|max_bytes",
        ),
        Case(
            "rar",
            "plain",
            "a name with ..",
            file("evil.rar", lambda: rar(5, "../../etc/passwd")),
            "opened(path).load_from_rar()",
            "outside of the archive",
        ),
    ]


CASES = [*tar_cases(), *zip_cases(), *rar_cases()]
