"""DiskCache: copies of remote files in a folder, within a budget of bytes that all processes of a machine share.

    open(url)  ─ in the folder ──────────────────────────────────>  the copy; it is now the most recently used
               ─ being fetched by another process ─ wait ────────>  its copy
               ─ neither ─ fetch into <name>.part ─ rename ──────>  the new copy

The budget is exact: a fetch makes room *before* it writes. Under the folder's lock it removes the least recently used
copies, then grows its .part file. A file that does not fit is read from its source and not kept. A copy may be removed
while it is read: readers keep it open. A .part file is locked by its writer; one without a lock belongs to a dead
process and is removed.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from headrace.errors import BadOption
from headrace.observe.meter import files
from headrace.secrets import shown
from headrace.sources import lock
from headrace.sources.bytes import local_stream

CHUNK = 1 << 20
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class DiskCache:
    """At most `limit` bytes of files in `folder`; `timeout` is how long another process's fetch is waited for."""

    folder: str
    limit: int
    timeout: float = 600.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.fspath(self.folder))
        if not isinstance(self.limit, int) or self.limit <= 0:
            raise BadOption(f"DiskCache(limit=) needs a positive number of bytes, not {self.limit!r}")

    def open(self, name: str, fetch: Callable[[], Any]) -> Any:
        """The file called `name`, open for reading; `fetch()` opens its source when there is no copy."""
        os.makedirs(self.folder, exist_ok=True)
        target = self.path(name)
        if (found := _open_copy(target)) is not None:
            return found
        part = f"{target}.part"
        fd = lock.acquire(part, self.timeout)
        try:
            if (found := _open_copy(target)) is not None:  # another process was quicker
                os.unlink(part)
                return found
            with closing(fetch()) as source:
                kept = self._copy(source, fd, part)
            if not kept:
                os.unlink(part)
                return fetch()
            os.fsync(fd)
            _touch(fd)
            with self._folder_lock():
                os.replace(part, target)
            os.lseek(fd, 0, os.SEEK_SET)
            return os.fdopen(os.dup(fd), "rb")  # not by name: the copy may be removed again at any moment
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise
        finally:
            lock.release(fd)

    def path(self, name: str) -> str:
        """The path of the copy of `name`, whether there is one or not."""
        digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        tail = re.sub(r"[^A-Za-z0-9._-]", "_", shown(name).partition("?")[0].rstrip("/").rpartition("/")[2])[-80:]
        return os.path.join(self.folder, f"{digest}-{tail}")

    def size(self) -> int:
        """Bytes in the folder now, fetches under way included."""
        with self._folder_lock():
            return sum(size for _, _, size in self._files())

    def _folder_lock(self) -> AbstractContextManager[None]:
        """The lock that is held while files are counted, grow or are renamed, so that counts are right."""
        return lock.hold(os.path.join(self.folder, LOCK), self.timeout)

    def _copy(self, source: Any, fd: int, part: str) -> bool:
        """Copy all of the source into the .part file; False if there is no room for it."""
        known = getattr(source, "size", None)
        if isinstance(known, int) and known > self.limit:
            return False
        step = max(CHUNK, min(self.limit // 8, 16 * CHUNK))
        end = room = 0
        with os.fdopen(fd, "wb", closefd=False) as file:
            while data := source.read(CHUNK):
                end += len(data)
                if end > room:
                    wish = known if isinstance(known, int) and known >= end else end + step
                    room = next((size for size in (wish, end) if self._reserve(fd, part, size)), 0)
                    if not room:
                        return False
                file.write(data)
        os.ftruncate(fd, end)
        return True

    def _reserve(self, fd: int, part: str, size: int) -> bool:
        """Grow the .part file to `size` bytes after removing what was used longest ago; False if there is no room."""
        with self._folder_lock():
            others = [(used, path, have) for used, path, have in self._files() if path != part]
            total = sum(have for _, _, have in others) + size
            finished = sorted(f for f in others if not f[1].endswith(".part"))
            if total - sum(have for _, _, have in finished) > self.limit:
                return False
            for _, path, have in finished:
                if total <= self.limit:
                    break
                os.unlink(path)
                total -= have
            os.ftruncate(fd, size)
            return True

    def _files(self) -> list[tuple[int, str, int]]:
        """(last used, path, bytes) of every file; .part files of dead processes are removed."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name == LOCK or not entry.is_file():
                    continue
                try:
                    if entry.name.endswith(".part") and lock.sweep(entry.path):
                        continue
                    stat = entry.stat()
                except FileNotFoundError:
                    continue
                found.append((stat.st_mtime_ns, entry.path, stat.st_size))
        return found


def _open_copy(path: str) -> Any:
    """The copy, opened and marked as just used; None if there is none."""
    try:
        file = local_stream(path)
    except FileNotFoundError:
        return None
    files.hit()
    _touch(file.fileno())
    return file


def _touch(fd: int) -> None:
    """Mark a copy as just used, to the nanosecond: the kernel's own time stamps are only as fine as its tick."""
    now = time.time_ns()
    os.utime(fd, ns=(now, now))
