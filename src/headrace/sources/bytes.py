"""Bytes: the one place where a file is opened for its content, on this machine or elsewhere.

    pread(start, size)     these bytes, all of them, or an error that names the file and the byte
    pread_many(spans)      many spans: near ones in one request, several requests at once
    read_into(start, room) as pread, into memory that is there already
    stream(start)          front to back, read ahead where the file is remote
    state                  what tells one version of the file from another: a changed file is an error that names it

`Local` is a file of this machine, `headrace.sources.remote.RemoteFile` any other. What is read is
counted in these two (`observe.meter`).
"""

import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from headrace.observe.meter import files

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Path = str | os.PathLike[str]
Buffer = bytes | memoryview
Span = tuple[int, int]
"""The first byte, and the number of bytes."""
PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
"""What a URL begins with: `s3://`, or `simplecache::s3://`. (A file's own name may hold colons further on.)"""


def is_remote(path: Path) -> bool:
    """Whether a path is a URL of another place than this machine's own files."""
    text = os.fspath(path)
    return PROTOCOL.match(text) is not None and not text.startswith(("file://", "local://"))


def local(path: Path) -> str:
    """A path of this machine without its protocol."""
    return os.fspath(path).removeprefix("file://").removeprefix("local://")


class DamagedFile(ValueError):
    """A stored file is cut off, damaged, or not of the format that it should be. The message names file and byte."""


class FileState(NamedTuple):
    """Size, time and inode of a file, or the tag that a store gives it: another state means that it has changed."""

    size: int
    changed: int
    """The time of its last change, in nanoseconds."""
    inode: int
    """Differs for another file under the same name, so caches of what a file holds use the whole state as key."""
    sidecar: "FileState | None" = None
    """The state of the file beside it that says where its samples stand, where there is one."""
    tag: str = ""
    """Of a remote file, its entity tag, or the date of its last change; empty if it has neither."""

    @staticmethod
    def of(path: str | int) -> "FileState":
        if isinstance(path, str) and is_remote(path):
            return open_bytes(path).state
        stat = os.stat(local(path) if isinstance(path, str) else path)
        return FileState(stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def is_same(self, other: "FileState") -> bool:
        """Whether this can be the same file. (A copy elsewhere has another inode.)"""
        return (self.size, self.changed, self.tag) == (other.size, other.changed, other.tag)

    def check(self, path: str, now: "FileState") -> None:
        """Raise if the file `path`, whose state is `now`, has changed."""
        if not self.is_same(now):
            raise DamagedFile(
                f"{path} has changed since the pipe was made ({self.size} bytes then, {now.size} now): make the pipe "
                "anew; where every machine has a copy of its own, copy files with their times (cp -p, rsync -t)"
            )


class ByteFile(ABC):
    """A file that is read at any place, by any number of threads."""

    path: str
    """Its name, as messages may show it."""

    @property
    @abstractmethod
    def state(self) -> FileState:
        """As it was when it was opened, or when the pipe was made."""

    @property
    def size(self) -> int:
        return self.state.size

    @abstractmethod
    def pread(self, start: int, size: int) -> Buffer:
        """The `size` bytes that begin at `start`; an error if the file ends before."""

    def pread_many(self, spans: Sequence[Span]) -> list[Buffer]:
        return [self.pread(start, size) for start, size in spans]

    def read_into(self, start: int, room: memoryview) -> None:
        room[:] = self.pread(start, len(room))

    @abstractmethod
    def stream(self, start: int = 0) -> io.BufferedReader:
        """The file as Python reads files, from this byte on."""

    def forward(self) -> "ByteFile":
        """The same file, for reads that go from front to back."""
        return self

    def check_again(self) -> None:
        """Raise if the file was written over since it was opened. (A store says so with every answer.)"""
        return

    def close(self) -> None:
        return

    def cut_off(self, start: int, size: int, end: int) -> DamagedFile:
        return DamagedFile(
            f"{self.path} ends at byte {end}, in the middle of {size} bytes that begin at byte {start}: it is cut off"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Local(ByteFile):
    """A file of this machine. (`os.pread` moves no position, so threads and forks may share it.)"""

    _fd = -1

    def __init__(self, path: str, state: FileState | None = None) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        files.opened()
        now = FileState.of(self._fd)
        if state is not None:
            state.check(path, now)
        self._state = now if state is None else state

    @property
    def state(self) -> FileState:
        return self._state

    def check_again(self) -> None:
        stat = os.stat(self._fd)
        if stat.st_mtime_ns != self._state.changed or stat.st_size != self._state.size:
            self._state.check(self.path, FileState.of(self._fd))

    def pread(self, start: int, size: int) -> bytes:
        data = os.pread(self._fd, size, start)
        files.read(len(data))
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), start + len(data))
            if not more:
                raise self.cut_off(start, size, start + len(data))
            files.read(len(more))
            data += more
        return data

    def read_into(self, start: int, room: memoryview) -> None:
        count = os.preadv(self._fd, [room], start)
        files.read(count)
        if count < len(room):
            room[count:] = self.pread(start + count, len(room) - count)

    def stream(self, start: int = 0) -> io.BufferedReader:
        return local_stream(self.path, start)

    def fileno(self) -> int:
        return self._fd

    def mapped(self) -> Any:
        """All of it as an array of bytes that are read when they are looked at, and counted by whoever does."""
        import numpy as np

        if not self.state.size:
            return np.zeros(0, np.uint8)
        with open(self._fd, "rb", closefd=False) as file:
            return np.asarray(np.memmap(file, np.uint8, "r"))

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class LocalStream(io.FileIO):
    """A local file that is only read, in Python's own way. (A buffered reader calls `readinto`, others `read`;
    `readall` calls neither.)"""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        files.opened()

    def __del__(self) -> None:
        self.close()  # (pyarrow drops files that it was given, without closing them)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        data: bytes = super().read(size) or b""
        files.read(len(data))
        return data

    def readall(self) -> bytes:
        data: bytes = super().readall() or b""
        files.read(len(data))
        return data

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        count = super().readinto(buffer) or 0
        files.read(count)
        return count


def local_stream(path: str, start: int = 0) -> io.BufferedReader:
    raw = LocalStream(path)
    if start:
        raw.seek(start)
    return io.BufferedReader(raw)


def mapped(path: str) -> Any:
    """A local file as an array of bytes that are read when they are looked at."""
    with Local(path) as file:
        return file.mapped()


def open_bytes(path: Path, state: FileState | None = None) -> ByteFile:
    """A file, to be read at any place; an error if it is not in this `state`. (A remote one need not be asked then.)"""
    if not is_remote(path):
        return Local(local(path), state)
    from headrace.sources.remote import RemoteFile

    return RemoteFile(os.fspath(path), state)
