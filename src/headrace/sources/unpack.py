"""Unpack: the content of compressed files, never more of it in memory than was asked for.

    a file -> _Content (unpacks as many bytes as there is room for) -> Unpacked (with a buffer and a limit)

Read in pieces, a content may be of any size. One read gives at most `limit` bytes: more is an error (`sources.limit`),
not memory. Members that stand one after the other are one content, and zeros after them are left out, as gzip does;
anything else there is an error, and so is a content that is cut off.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from headrace.errors import TooLarge, name_file
from headrace.sources.bytes import DamagedFile
from headrace.sources.limit import LARGEST, PARSED, PIECE, check_limit

FEED = 1 << 16
"""Bytes of the compressed file that are read at a time."""
BUFFER = 1 << 16
GZIP, BZIP2, XZ, ZSTD = "gzip", "bzip2", "xz", "zstd"
MAGIC = {GZIP: b"\x1f\x8b", BZIP2: b"BZh", XZ: b"\xfd7zXZ\0", ZSTD: b"\x28\xb5\x2f\xfd"}
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What stands 4 bytes after the start of a bzip2 file: its first block, or its end."""
HEAD = 10
"""Bytes that tell how a file is compressed."""


class DamagedContent(OSError, EOFError, DamagedFile):
    """A compressed file is damaged or cut off. (Also the errors that the standard library would raise.)"""

    what = ""
    """What is wrong, without the name of the file."""


class Unpacker(Protocol):
    """What unpacks one member, as `bz2.BZ2Decompressor` does."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def packed_by(head: bytes) -> str | None:
    """How a file is compressed, by its first bytes; None if it is not. (A name in a tar file may begin with "BZh".)"""
    if head.startswith(MAGIC[BZIP2]) and head[4:HEAD] not in BZIP2_BLOCKS:
        return None
    return next((kind for kind, magic in MAGIC.items() if head.startswith(magic)), None)


class Unpacked(io.BufferedReader):
    """A file that is unpacked while it is read; `limit` is the most that one read may give."""

    def __init__(self, raw: Any, path: str, limit: int) -> None:
        super().__init__(raw, BUFFER)
        self.path = path
        self.limit = limit

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            if size is not None and 0 <= size <= PIECE:
                return super().read(size)
            wanted = self.limit + 1 if size is None or size < 0 else size
            pieces, total = [], 0
            while piece := super().read(min(PIECE, wanted - total)):
                pieces.append(piece)
                total += len(piece)
                check_limit(total, self.limit, self.path)
        except Exception as error:
            name_file(error, self.path)
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is not None and size >= 0:
            return super().readline(size)
        line = super().readline(self.limit // PARSED + 1)
        check_limit(PARSED * len(line), self.limit, f"a line of {self.path}")
        return line


def unpacked(file: Any, kind: str, path: str, limit: int = LARGEST) -> Unpacked:
    """The content of an open file that is compressed in this way; `path` is its name, for messages."""
    if kind not in UNPACKERS:
        raise DamagedFile(f"{path} is compressed by {kind}, which is not read as a stream: unpack it once")
    return Unpacked(_Content(file, kind, path, limit), path, limit)


class _Content(io.RawIOBase):
    """The content of a compressed file, as far as it is asked for. The file itself is left open."""

    def __init__(self, file: Any, kind: str, path: str, limit: int) -> None:
        super().__init__()
        self._file = file
        self._kind = kind
        self._path = path
        self._limit = limit
        self._start = file.tell() if hasattr(file, "seekable") and file.seekable() else None
        self._restart()

    def _restart(self) -> None:
        self._unpacker = UNPACKERS[self._kind]()
        self._feed = b""
        """Compressed bytes that the unpacker has not seen."""
        self._position = 0
        self._ended = False

    def readinto(self, room: Any, /) -> int:
        data = b"" if self._ended or not len(room) else self._next(len(room))
        room[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _next(self, most: int) -> bytes:
        """Between 1 and `most` bytes; none at the end."""
        while True:
            if self._unpacker.eof and not self._another():
                self._ended = True
                return b""
            over = self._unpacker.needs_input and not self._feed and not self._fed()
            feed, self._feed = self._feed, b""
            try:
                data = self._unpacker.decompress(feed, most)
            except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
                if "memory" in str(error).lower():
                    raise TooLarge(f"{self._path}: {error}; unpack it by hand, if you trust it") from None
                raise self._damaged(f"is damaged ({error})") from None
            if data:
                return data
            if over and not self._unpacker.eof:
                raise self._damaged("is cut off")

    def _damaged(self, how: str) -> DamagedContent:
        error = DamagedContent(f"{self._path}: its {self._kind} {how}; make or fetch it again")
        error.what = f"its {self._kind} {how}"
        return error

    def _fed(self) -> bool:
        self._feed = self._file.read(FEED)
        return bool(self._feed)

    def _another(self) -> bool:
        """Whether another member begins where one has ended."""
        self._feed = self._unpacker.unused_data.lstrip(b"\0")
        while not self._feed and self._fed():
            self._feed = self._feed.lstrip(b"\0")
        self._unpacker = UNPACKERS[self._kind]()
        return bool(self._feed)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._start is not None

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Forward by unpacking what is in between, back by starting again."""
        if self._start is None:
            raise io.UnsupportedOperation(f"{self._path} comes from a stream that cannot be read again")
        room = memoryview(bytearray(BUFFER))
        if whence == io.SEEK_END:
            while self.readinto(room):
                check_limit(self._position, self._limit, f"{self._path}, which is read from its end,")
        target = offset + (0 if whence == io.SEEK_SET else self._position)
        if target < self._position:
            self._file.seek(self._start)
            self._restart()
        while self._position < target and self.readinto(room[: target - self._position]):
            pass
        return self._position


class GzipUnpacker:
    """One member of gzip; zlib compares its check sum."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


UNPACKERS: dict[str, Callable[[], Unpacker]] = {
    GZIP: GzipUnpacker,
    BZIP2: bz2.BZ2Decompressor,
    XZ: lambda: lzma.LZMADecompressor(memlimit=LARGEST),  # (a file of xz says how much memory it needs to be unpacked)
}
