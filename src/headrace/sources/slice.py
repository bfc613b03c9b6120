"""FileSlice: a part of a local file, as a file.

A slice has a position of its own, so slices of one file can be read in any order and in any thread. It uses the
descriptor of the open file that it is a part of, if it is given one; otherwise it opens the file at the first read, so
that slices that are never read cost nothing.
"""

import io
import os
import sys
from typing import Any

from headrace.observe.meter import files
from headrace.sources.bytes import Local
from headrace.sources.raw import RawFile


class FileSlice(RawFile):
    """Bytes `start .. start + size` of the file `path`; `shared` is that file, open."""

    step = sys.maxsize

    def __init__(self, path: str, start: int, size: int, shared: Any = None) -> None:
        super().__init__(path, size)
        self._start = start
        self._stop = start + size
        self._shared = shared
        self._own: Local | None = None

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None
        super().close()

    def fetch(self, wanted: int) -> bytes:
        start = self._start + self.position
        if start >= self._stop:
            return b""
        data = os.pread(self._opened(), min(wanted, self._stop - start), start)
        if not data and wanted:
            raise EOFError(f"{self.path} ends before byte {self._stop}: it was cut short")
        files.read(len(data))
        return data

    def _opened(self) -> int:
        if self._shared is not None:
            return int(self._shared.fileno())  # raises if it is closed: its number may belong to another file by now
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._own is None:
            self._own = Local(self.path)
        return self._own.fileno()


def open_slice(path: str, start: int, size: int) -> io.BufferedReader:
    """A slice with a buffer."""
    return io.BufferedReader(FileSlice(path, start, size))
