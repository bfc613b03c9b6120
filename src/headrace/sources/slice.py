"""FileSlice: a part of a local file, as a file.

Reading it moves nobody's position, so slices of one file can be read in any order and in any thread. A slice shares the
descriptor of the file it was cut from, if that is open here; otherwise it opens the file when it is first read, so that
many unread slices cost nothing.
"""

import io
import os
from typing import Any


class FileSlice(io.RawIOBase):
    """Bytes `start .. start + size` of the file `path`; `shared` is that file, open."""

    def __init__(self, path: str, start: int, size: int, shared: Any = None) -> None:
        super().__init__()
        self._path = path
        self._start = start
        self._size = size
        self._shared = shared
        self._own: int | None = None
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._take(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        parts = []
        while data := self._take(self._size):
            parts.append(data)
        return b"".join(parts)

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None
        super().close()

    def _take(self, wanted: int) -> bytes:
        wanted = min(wanted, self._size - self._at)
        if wanted <= 0:
            return b""
        data = os.pread(self._descriptor(), wanted, self._start + self._at)
        if not data:
            raise EOFError(f"{self._path} ends before byte {self._start + self._size}: it was cut short")
        self._at += len(data)
        return data

    def _descriptor(self) -> int:
        if self._shared is not None:
            return int(self._shared.fileno())  # raises if it is closed: its number may belong to another file by now
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._own is None:
            self._own = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._own


def open_slice(path: str, start: int, size: int) -> io.BufferedReader:
    """A slice with a buffer."""
    return io.BufferedReader(FileSlice(path, start, size))
