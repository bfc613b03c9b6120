"""Whole: a file that appears under its name only when it is complete, whatever happens to who writes it.

    with atomic_write("out/a.jpg", "wb") as file:
        file.write(data)

It is written into a file without a name and linked at the end, so a killed writer leaves nothing. Where the file system
has no such files (NFS, say), and for the moment in which an older file is replaced, it stands beside its place as
`.a.jpg.<random>.part`, locked by its writer; a process that writes into a folder first removes
what nobody locks there.
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
_swept: set[str] = set()
"""The folders that this process has looked through."""
_NAMELESS = getattr(os, "O_TMPFILE", 0)


@contextmanager
def atomic_write(path: str, mode: str) -> Iterator[IO[Any]]:
    """A file to write (mode w, wb or wt); it becomes `path` when the block ends without an error."""
    folder, name = os.path.split(path)
    folder = folder or "."
    os.makedirs(folder, exist_ok=True)
    _sweep(folder)
    fd = _nameless(folder)
    if fd is None:
        with _beside(folder, name, mode) as file:
            yield file
        return
    with _opened(fd, mode) as file:
        yield file
        file.flush()
        _link(fd, folder, name)


def _nameless(folder: str) -> int | None:
    if not _NAMELESS:
        return None
    try:
        return os.open(folder, _NAMELESS | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as refused:
        if refused.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def _link(fd: int, folder: str, name: str) -> None:
    """Give the file its name."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _named(fd, at, name)
        except FileExistsError:
            fcntl.flock(fd, fcntl.LOCK_EX)
            part = _part(name)
            _named(fd, at, part)
            _replaced(part, name, at)
    except OSError as refused:
        if refused.errno not in (errno.ENOENT, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP):
            raise
        # A file system that cannot link, or no /proc: once more, beside its place.
        os.lseek(fd, 0, os.SEEK_SET)
        with _beside(folder, name, "wb") as copy, os.fdopen(os.dup(fd), "rb") as file:
            copyfileobj(file, copy, 1 << 20)
    finally:
        os.close(at)


def _named(fd: int, folder: int, name: str) -> None:
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)


def _replaced(part: str, name: str, folder: int | None = None) -> None:
    try:
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        raise


@contextmanager
def _beside(folder: str, name: str, mode: str) -> Iterator[IO[Any]]:
    part = os.path.join(folder, _part(name))
    fd = lock.acquire(part, timeout=0)  # it is ours alone: its name is random
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        with _opened(fd, mode) as file:
            yield file
            file.flush()
            _replaced(part, os.path.join(folder, name))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise


def _opened(fd: int, mode: str) -> IO[Any]:
    return os.fdopen(fd, mode, encoding=None if "b" in mode else "utf-8")


def _part(name: str) -> str:
    return f".{name}.{os.urandom(6).hex()}.part"


def _sweep(folder: str) -> None:
    """Remove what killed writers have left."""
    known = os.path.realpath(folder)
    if known in _swept:
        return
    _swept.add(known)
    with os.scandir(folder) as entries:
        for entry in entries:
            if _PART.fullmatch(entry.name):
                lock.sweep(entry.path)
