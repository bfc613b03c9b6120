"""The bytes of a tar archive: of a plain file by their place, of anything else in passing, unpacked where need be."""

import io
import os
import re
import tarfile
from typing import Any

from headrace.errors import BadOption
from headrace.sources.limit import UNLIMITED, check_limit, exactly, limit_of
from headrace.sources.stream import StreamWrapper
from headrace.sources.tar import Member, damaged
from headrace.sources.unpack import BZIP2, GZIP, HEAD, XZ, DamagedContent, packed_by, unpacked

PIECE = 1 << 20
CHECKED = 16 << 20
"""Bytes after the end of an archive that are read so that the check sum of what it is compressed with is compared."""
MODE = re.compile(r"r?[:|]?(\*|gz|bz2|xz|)")
CURE = 'make or fetch the archive again, or leave out what it lost with on_error="skip"'
KINDS = {"gz": GZIP, "bz2": BZIP2, "xz": XZ, "": None}


def check_mode(mode: str) -> None:
    if MODE.fullmatch(mode) is None:
        raise BadOption(f"load_from_tar(mode={mode!r}): write 'r:*', or one of r: r:gz r:bz2 r:xz")


def open_archive(stream: StreamWrapper, path: str, mode: str, max_bytes: int) -> "PlainFile | Passing":
    """The archive in a stream; `mode` as for `tarfile.open`."""
    file = stream.file_obj
    if isinstance(file, tarfile.TarFile):
        inner: Any = file.fileobj
        inner.seek(0)  # (its first header was read when it was opened)
        return Passing(inner, path, max_bytes, max_bytes)
    head, file = begun(file)
    found = MODE.fullmatch(mode)
    assert found is not None
    kind = packed_by(head) if found[1] == "*" else KINDS[found[1]]
    if kind is not None:
        return Passing(unpacked(file, kind, path, max_bytes), path, max_bytes, max_bytes)
    return PlainFile(file, path, max_bytes) if _is_plain(file) else Passing(file, path, limit_of(file), max_bytes)


def begun(file: Any) -> tuple[bytes, Any]:
    """The first bytes of an open file, and the file as it was before they were read."""
    head = exactly(file, HEAD)
    # (A sequential file can seek, but each jump would be another request.)
    if getattr(file, "sequential", False) or not (hasattr(file, "seekable") and file.seekable()):
        return head, _Rejoined(head, file)
    file.seek(-len(head), io.SEEK_CUR)
    return head, file


def content(archive: "PlainFile | Passing", member: Member, name: str) -> bytes:
    """What a member holds; `name` is its name for messages."""
    limit = archive.limit if member.holes is None else archive.max_bytes
    check_limit(max(member.size, member.length), limit, name)
    data = archive.read(member.data, member.size)
    if len(data) < member.size:
        raise damaged(archive, member.start, f"it is cut off, in {member.name}")
    return data if member.holes is None else member.holes.filled(data)


class PlainFile:
    """A local file that is no more than the archive. (`os.pread` moves no position.)"""

    limit = UNLIMITED
    cure = CURE

    def __init__(self, file: Any, path: str, max_bytes: int) -> None:
        self.path = path
        self.file = os.path.abspath(file.name)
        self.max_bytes = max_bytes
        self._fd = file.fileno()
        self.size: int | None = os.stat(self._fd).st_size

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._fd, size, start)

    def finish(self) -> None:
        pass


class Passing:
    """A stream that is read once, from its beginning. `limit`: the most bytes of a member, `max_bytes`: of one whose
    holes the archive leaves out."""

    size: int | None = None
    cure = CURE

    def __init__(self, stream: Any, path: str, limit: int, max_bytes: int) -> None:
        self.path = path
        self.limit = limit
        self.max_bytes = max_bytes
        self._stream = stream
        self._at = 0

    def read(self, start: int, size: int) -> bytes:
        try:
            while self._at < start:
                if not (dropped := self._stream.read(min(start - self._at, PIECE))):
                    raise damaged(self, self._at, f"it is cut off, in a member that ends at byte {start}")
                self._at += len(dropped)
            data = exactly(self._stream, size)
        except DamagedContent as error:
            raise damaged(self, self._at, f"{error.what}, so what was read may be damaged too") from None
        self._at += len(data)
        return data

    def finish(self) -> None:
        """Read what is left, which is zeros, because a check sum is compared at the end."""
        stop = self._at + CHECKED
        while self._at < stop and self.read(self._at, PIECE):
            pass


def _is_plain(file: Any) -> bool:
    """Whether this is a local file that was not read from yet."""
    is_file = isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO) and isinstance(file.name, str)
    return is_file and file.tell() == 0


class _Rejoined:
    """A stream with bytes in front that were read already."""

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int) -> bytes:
        if not self._head:
            return self._stream.read(size)  # type: ignore[no-any-return]
        found, self._head = self._head[:size], self._head[size:]
        return found
