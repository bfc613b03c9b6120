"""The contract of a stored format: where the samples of a file stand, and what their bytes mean.

A sample is a span of bytes of one file. A format says where the spans are, from a table that the file has or by a scan
(`find`), and turns the bytes of one span into a sample (`decode`). Everything else - many files, positions, reading,
keeping what a scan has found - is the same for all formats and stands in `source` and `index`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.observe.meter import files

Ints = NDArray[np.int64]


class DamagedFile(ValueError):
    """A stored file is cut off, damaged, or not of the format that it should be. The message names file and byte."""


class Spans(NamedTuple):
    """The first byte and the number of bytes of each sample of a file."""

    starts: Ints
    sizes: Ints

    @staticmethod
    def of(starts: Any, sizes: Any) -> "Spans":
        return Spans(np.asarray(starts, np.int64), np.asarray(sizes, np.int64))


class FileState(NamedTuple):
    """By what a changed file is known."""

    size: int
    changed: int
    """The time of its last change, in nanoseconds."""
    inode: int
    """Another file under the same name has another one: what a process keeps of a file, it keeps under all of these."""
    sidecar: "FileState | None" = None
    """Of the file beside it that says where its samples stand, where there is one."""

    @staticmethod
    def of(path: str | int, sidecar: str | None = None) -> "FileState":
        about = os.stat(path)
        other = None if sidecar is None else FileState.of(sidecar)
        return FileState(about.st_size, about.st_mtime_ns, about.st_ino, other)

    def check(self, path: str, now: "FileState") -> None:
        """An error if the file, which is `now` like that, is not as it was. (A copy elsewhere has another inode.)"""
        if (self.size, self.changed) != (now.size, now.changed):
            raise DamagedFile(
                f"{path} has changed since the pipe was made ({self.size} bytes then, {now.size} now): make the pipe "
                "anew; where every machine has a copy of its own, copy files with their times (cp -p, rsync -t)"
            )


class OpenFile:
    """A local file, read at any place. (`os.pread` moves nobody's position, so threads and forks may share it.)"""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        files.opened()
        self.state = FileState.of(self._fd)
        self.size = self.state.size
        """The first place after all samples. Places are bytes, of a packed file those of what is packed into it."""
        self.bytes = self.size
        """Bytes of all of it, as they lie in memory."""

    unit_memory = 0
    """Bytes that stay in memory while a unit of it is read."""

    def unit_ends(self, step: int) -> Ints:
        """Where units of about `step` bytes end."""
        return np.arange(step, self.size + step, step)

    def check(self, state: FileState) -> None:
        """An error if the file was not like this when it was opened."""
        state.check(self.path, self.state)

    def check_again(self) -> None:
        """An error if the file was written over since it was opened."""
        about = os.stat(self._fd)
        if about.st_mtime_ns != self.state.changed or about.st_size != self.state.size:
            self.state.check(self.path, FileState.of(self._fd))

    def read(self, start: int, size: int) -> bytes:
        """These bytes; an error where the file ends before."""
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
        """The bytes that begin at `start`, into `room`: whoever scans a file needs no new memory for each piece."""
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
    """One kind of file. Frozen and picklable; its fields are part of the order."""

    __slots__ = ()
    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]] = ()
    """What names of such files end with, in small letters and without the ending of a compression."""
    scanned: ClassVar[bool] = True
    """Finding the spans means reading through the file, so they are kept beside it."""
    packable: ClassVar[bool] = True
    """Compressed files of this format are read as what is packed into them."""

    @classmethod
    def of(cls, files: tuple[str, ...], trust: bool) -> "StoredFormat":
        """The format of these files; `trust`: the user says that what they hold may be run."""
        return cls()

    def open(self, path: str) -> OpenFile:
        """A file of this format, to be read at any place."""
        return OpenFile(path)

    def sidecar(self, path: str) -> str | None:
        """The file beside this one that says where its samples stand: it must stay as it is, like the file itself."""
        return None

    @abstractmethod
    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        """The spans of a file: all at once from a table, or by a scan a good many at a time, from byte `start` on. (A
        scan that was ended goes on behind the last span that it had told.)"""

    def place_of(self, spans: Spans, row: int) -> str:
        """Where sample number `row` of a file stands, for whoever looks for it there."""
        return f"at byte {spans.starts[row]}"

    @abstractmethod
    def decode(self, data: bytes, file: OpenFile, start: int) -> Any:
        """The sample in these bytes, which begin at byte `start` of the file."""
