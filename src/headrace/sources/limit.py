"""Limit: how much memory the content of one file may take when it is unpacked or decoded.

A few kilobytes can hold, or say that they hold, gigabytes. Whatever has to be in memory as a whole (a member of an
archive, a line, the pixels of an image) may have at most `limit` bytes; more is an error before the memory is taken, or
as soon as the limit is passed. What a file holds as it is, without being unpacked, is not limited: it is no larger than
the file.
"""

import io
import sys
from collections.abc import Iterator
from typing import Any

from headrace.errors import LARGEST as LARGEST
from headrace.errors import TooLarge

PARSED = 10
"""Bytes of memory that are counted for a byte of text that is parsed: lists and numbers take more than their text."""
VALUE = 64
"""Bytes of memory that are counted for a value that becomes a Python object."""
UNLIMITED = sys.maxsize
PIECE = 16 << 20
"""Bytes that are read at a time."""


def check_limit(size: int, limit: int, what: str, times: float = 1) -> None:
    """Raise if so many bytes are more than the limit, or than so many times the limit."""
    if size > times * limit:
        allowed = "" if times == 1 else f" allows {int(times * limit):,} of them"
        raise TooLarge(
            f"{what} takes {size:,} bytes of memory or more, and max_bytes={limit:,}{allowed}: if the file is not "
            "damaged and you trust it, give the verb that unpacks or decodes it a larger max_bytes="
        )


def limit_of(stream: object) -> int:
    """The limit of what is read from a stream: that of a file which is unpacked, none for any other."""
    limit = getattr(getattr(stream, "file_obj", stream), "limit", UNLIMITED)
    return limit if isinstance(limit, int) else UNLIMITED


def bounded_lines(stream: Any, limit: int, path: str) -> Iterator[Any]:
    """The lines of a file of text or bytes, each within the limit."""
    if limit == UNLIMITED or isinstance(stream, io.BufferedReader):  # (one that is unpacked checks its lines itself)
        return iter(stream)
    most = limit // PARSED

    def checked() -> Iterator[Any]:
        while line := stream.readline(most + 1):
            check_limit(PARSED * len(line), limit, f"a line of {path}")
            yield line

    return checked()


def exactly(stream: Any, count: int) -> bytes:
    """That many bytes of a stream, fewer only at its end: a raw stream may give less than it is asked for.

    In pieces, because a damaged file may say any number, and no more memory is to be asked for than the file fills.
    """
    pieces: list[bytes] = []
    while count and (piece := stream.read(min(count, PIECE))):
        pieces.append(piece)
        count -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
