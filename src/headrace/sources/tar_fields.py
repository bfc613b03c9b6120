"""Fields of tar headers: numbers, names, PAX records. One that cannot be right is a ValueError; it lacks its place."""

import re
from collections.abc import Iterator

BLOCK = 512
OCTAL = re.compile(rb"[0-7]*")
DECIMAL = re.compile(rb"[0-9]{1,18}")


def number(field: bytes) -> int:
    """Octal digits, or, if they would not be enough, binary after a byte 0x80."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip()
    if OCTAL.fullmatch(digits) is None:
        raise ValueError(f"{digits!r} stands where a size or an offset should stand")
    return int(digits or b"0", 8)


def decimal(digits: bytes) -> int:
    """The same in PAX headers: decimal digits."""
    if DECIMAL.fullmatch(digits) is None:
        raise ValueError(f"{digits[:20]!r} stands where a size or an offset should stand")
    return int(digits)


def size_of(header: bytes) -> int:
    """The size that a header tells, after its check sum was compared."""
    # (8 blanks stand for the sum itself. Some old programs added up bytes with a sign.)
    plain = sum(header) - sum(header[148:156]) + 8 * 32
    signed = plain - 256 * sum(byte > 127 for byte in header[:148] + header[156:])
    if number(header[148:156]) not in (plain, signed):
        raise ValueError("no header of a member stands here, its check sum differs")
    return number(header[124:136])


def name_of(header: bytes) -> str:
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    if prefix and header[257:262] == b"ustar":
        name = prefix + b"/" + name
    return text(name)


def records(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The records of a PAX header, each `length key=value` and a newline."""
    at = 0
    while at < len(content):
        blank = content.find(b" ", at, at + 20)
        stop = at + decimal(content[at : max(at, blank)])
        equals = content.find(b"=", blank, stop)
        if equals < 0 or stop > len(content):
            raise ValueError("a field of a PAX header is damaged")
        yield text(content[blank + 1 : equals]), content[equals + 1 : stop].removesuffix(b"\n")
        at = stop


def text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
