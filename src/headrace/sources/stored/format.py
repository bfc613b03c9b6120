"""The contract of a stored format: where the samples of a file stand, and what their bytes mean.

A sample is a span of bytes of one file. A format finds the spans, in a table that the file has or by a scan (`find`),
and turns the bytes of one span into a sample (`decode`). Everything else - many files, positions, reading, keeping what
a scan has found - is the same for all formats and is in `source` and `index`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.observe.meter import files

Ints = NDArray[np.int64]
MEMORY = 256 << 20
"""Bytes of groups of records, read as a whole, that a process keeps in memory."""


class DamagedFile(ValueError):
    """A stored file is cut off, damaged, or not of the format that it should be. The message names file and byte."""


class Spans(NamedTuple):
    """The first byte and the number of bytes of each sample of a file."""

    starts: Ints
    sizes: Ints

    @staticmethod
    def of(starts: Any, sizes: Any) -> "Spans":
        return Spans(np.asarray(starts, np.int64), np.asarray(sizes, np.int64))

    @staticmethod
    def numbered(count: int) -> "Spans":
        """For a file whose places are numbers of samples, not bytes."""
        return Spans(np.arange(count), np.ones(count, np.int64))


class FileState(NamedTuple):
    """Size, time and inode of a file: another state means that the file has changed."""

    size: int
    changed: int
    """The time of its last change, in nanoseconds."""
    inode: int
    """Differs for another file under the same name, so caches of what a file holds use the whole state as key."""
    sidecar: "FileState | None" = None
    """The state of the file beside it that says where its samples stand, where there is one."""

    @staticmethod
    def of(path: str | int, sidecar: str | None = None) -> "FileState":
        stat = os.stat(path)
        other = None if sidecar is None else FileState.of(sidecar)
        return FileState(stat.st_size, stat.st_mtime_ns, stat.st_ino, other)

    def check(self, path: str, now: "FileState") -> None:
        """Raise if the file `path`, whose state is `now`, has changed. (A copy elsewhere has another inode.)"""
        if (self.size, self.changed) != (now.size, now.changed):
            raise DamagedFile(
                f"{path} has changed since the pipe was made ({self.size} bytes then, {now.size} now): make the pipe "
                "anew; where every machine has a copy of its own, copy files with their times (cp -p, rsync -t)"
            )


class OpenFile:
    """A local file that is read at any place. (`os.pread` moves no position, so threads and forks may share it.)"""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        files.opened()
        self.state = FileState.of(self._fd)
        self.size = self.state.size
        """The first place after all samples. Places are bytes, or numbers of records."""
        self.bytes = self.size

    unit_memory = 0
    """Bytes that stay in memory while a unit of the file is read."""

    def unit_ends(self, step: int) -> Ints:
        """The places at which units of about `step` bytes end."""
        return np.arange(step, self.size + step, step)

    def check(self, state: FileState) -> None:
        """Raise if the file had another state when it was opened."""
        state.check(self.path, self.state)

    def check_again(self) -> None:
        """Raise if the file was written over since it was opened."""
        stat = os.stat(self._fd)
        if stat.st_mtime_ns != self.state.changed or stat.st_size != self.state.size:
            self.state.check(self.path, FileState.of(self._fd))

    def read(self, start: int, size: int) -> bytes:
        """The `size` bytes that begin at `start`; an error if the file ends before."""
        data = os.pread(self._fd, size, start)
        files.read(len(data))
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), start + len(data))
            if not more:
                raise DamagedFile(
                    f"{self.path} ends at byte {start + len(data)}, in the middle of {size} bytes that begin at byte "
                    f"{start}: it is cut off"
                )
            files.read(len(more))
            data += more
        return data

    def read_into(self, start: int, room: memoryview) -> None:
        """Fill `room` with the bytes that begin at `start`: a scan then needs no new memory for each piece."""
        count = os.preadv(self._fd, [room], start)
        files.read(count)
        if count < len(room):
            room[count:] = self.read(start + count, len(room) - count)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> "OpenFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StoredFormat(ABC):
    """One kind of file. Frozen and picklable; its fields are part of a pipe's fingerprint."""

    __slots__ = ()
    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]] = ()
    """What names of such files end with, in small letters."""
    scanned: ClassVar[bool] = True
    """The spans are found by reading through the file, so they are kept in an index beside it."""

    @classmethod
    def of(cls, files: tuple[str, ...], trust: bool) -> "StoredFormat":
        """The format of these files; with `trust`, the user allows pickles in them to be loaded."""
        return cls()

    def open(self, path: str) -> OpenFile:
        """A file of this format, to be read at any place."""
        return OpenFile(path)

    def sidecar(self, path: str) -> str | None:
        """The file beside this one that says where its samples stand, if any: it must not change either."""
        return None

    @abstractmethod
    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        """The spans of a file: all at once from a table, or thousands at a time by a scan that begins at byte `start`.
        (A scan that was interrupted goes on behind the last span that was saved.)"""

    def place_of(self, spans: Spans, row: int) -> str:
        """Where sample number `row` of a file stands, for messages."""
        return f"at byte {spans.starts[row]}"

    @abstractmethod
    def decode(self, data: bytes, file: OpenFile, start: int) -> Any:
        """The sample in these bytes, which begin at byte `start` of the file."""
