"""Atomic writes: a file appears under its name only when it is complete, even if the process that writes it is killed.

    with atomic_write("out/a.jpg", "wb") as file:
        file.write(data)

The content goes into a file without a name, which is linked to its name at the end, so a killed writer leaves nothing.
Where the file system has no such files (NFS, say), and for the moment in which an older file is replaced, it stands
beside its final place as `.a.jpg.<random>.part`, locked by its writer. Before a process writes into a folder for the
first time, it removes the .part files there that nobody locks. With `sync=True` a file has its name only when its
content is on the disk, so that a power cut leaves it whole too.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import copyfileobj
from typing import IO, Any

from headrace.sources import lock

_PART = re.compile(r"\..+\.[0-9a-f]{12}\.part")
MOST = 48
"""Letters of a file's name that stand in that of its .part file, which must not be too long when the name is long."""
_swept: set[str] = set()
"""The folders that this process has looked through."""
_NAMELESS = getattr(os, "O_TMPFILE", 0)


def prepare(folder: str) -> None:
    """Remove what killed writers have left in a folder; raises OSError if no file can be made there."""
    _sweep(folder)
    fd = _nameless(folder)
    if fd is None:
        part = _part(os.path.join(folder, "try"))
        fd = lock.acquire(part, timeout=0)
        os.unlink(part)
    os.close(fd)


@contextmanager
def atomic_write(path: str, mode: str, *, sync: bool = False) -> Iterator[IO[Any]]:
    """A file to write (mode w, wb or wt); it becomes `path` when the block ends without an error."""
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    if (known := os.path.realpath(folder)) not in _swept:
        _sweep(folder)
        _swept.add(known)
    fd = _nameless(folder)
    if fd is None:
        with _beside(path, mode, sync) as file:
            yield file
        return
    with _opened(fd, mode) as file:
        yield file
        _flush(file, sync)
        _link(fd, path, sync)


def _nameless(folder: str) -> int | None:
    if not _NAMELESS:
        return None
    try:
        return os.open(folder, _NAMELESS | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as refused:
        if refused.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def _flush(file: IO[Any], sync: bool) -> None:
    file.flush()
    if sync:
        os.fsync(file.fileno())


def _link(fd: int, path: str, sync: bool) -> None:
    """Give the nameless file its name."""
    try:
        try:
            _link_descriptor(fd, path)
        except FileExistsError:
            fcntl.flock(fd, fcntl.LOCK_EX)
            part = _part(path)
            _link_descriptor(fd, part)
            with _removed_on_error(part):
                os.replace(part, path)
    except OSError as refused:
        if refused.errno not in (errno.ENOENT, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP):
            raise
        # A file system that cannot link, or no /proc: once more, beside its place.
        os.lseek(fd, 0, os.SEEK_SET)
        with _beside(path, "wb", sync) as copy, os.fdopen(os.dup(fd), "rb") as file:
            copyfileobj(file, copy, 1 << 20)


def _link_descriptor(fd: int, path: str) -> None:
    # (An absolute path makes no use of `dst_dir_fd`, but without it Python would link the link in /proc.)
    os.link(f"/proc/self/fd/{fd}", path, dst_dir_fd=fd, follow_symlinks=True)


@contextmanager
def _beside(path: str, mode: str, sync: bool) -> Iterator[IO[Any]]:
    """A .part file to write, which replaces `path` when the block ends without an error."""
    part = _part(path)
    fd = lock.acquire(part, timeout=0)  # nobody else has it: its name is random
    os.ftruncate(fd, 0)
    with _removed_on_error(part), _opened(fd, mode) as file:
        yield file
        _flush(file, sync)
        os.replace(part, path)


@contextmanager
def _removed_on_error(part: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise


def _opened(fd: int, mode: str) -> IO[Any]:
    return os.fdopen(fd, mode, encoding=None if "b" in mode else "utf-8")


def _part(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:MOST]}.{os.urandom(6).hex()}.part")


def _sweep(folder: str) -> None:
    """Remove the .part files that killed writers have left."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _PART.fullmatch(entry.name):
                with suppress(PermissionError):  # another user's
                    lock.sweep(entry.path)
