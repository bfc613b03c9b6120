"""A hostile file: how it is made, how it is read, and what has to come of it."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CODECS = ("gzip", "bzip2", "xz")
ENDINGS = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz"}
GIGABYTE = 10**9
MOST = 900
"""Megabytes that a process may take to find out that a file is hostile."""


class Case(NamedTuple):
    format: str
    codec: str
    """How the file is compressed; "plain" if it is not."""
    attack: str
    write: Callable[[Path], Path]
    """Writes the file into a folder, and says what is to be read."""
    read: str
    """The samples, as an expression of `path`."""
    says: str = ""
    """What the error must say, as a regular expression, besides the name of the file."""
    gives: list[Any] | None = None
    """The samples, where there is no error."""
    most: int = MOST

    @property
    def id(self) -> str:
        return f"{self.format}, {self.codec}: {self.attack}"


def file(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    """A file with this content, which is made when it is needed."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content())
        return path

    return write


def packed(codec: str, *parts: bytes | int) -> bytes:
    """Bytes, and numbers of zeros, compressed end to end as one content."""
    return b"".join(_zeros(codec, part) if isinstance(part, int) else _compress(codec, part) for part in parts)


def _compress(codec: str, data: bytes) -> bytes:
    if codec == "gzip":
        return gzip.compress(data, 9)
    return bz2.compress(data) if codec == "bzip2" else lzma.compress(data, preset=0)


BLOCK = 45_000_000
"""Zeros that are compressed at a time. (45 bytes of bzip2.)"""


@cache
def _block(codec: str) -> bytes:
    return _compress(codec, bytes(BLOCK))


def _zeros(codec: str, count: int) -> bytes:
    rest = count % BLOCK
    return _block(codec) * (count // BLOCK) + (_compress(codec, bytes(rest)) if rest else b"")
