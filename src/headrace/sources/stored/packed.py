"""Packed files: compressed files that are read by position, member by member.

A gzip, zstd or bzip2 file is one or several members end to end, each of which can be unpacked by itself. Where they
begin is found once and kept like any index. A position means a byte of the unpacked text; the members that hold it are
unpacked, and those used last stay in memory. A file of a single large member has to be unpacked whole for any sample of
it, so above a size it is refused: programs such as `bgzip` or `zstd --target-compressed-block-size`, or several smaller
files, make members.
"""

import bz2
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np

from headrace.sources.extra import need
from headrace.sources.stored.form import DamagedFile, FileState, Found, Ints, OpenFile, Spans, StoredFormat

HELD = 256 << 20
"""Bytes of unpacked members that a process keeps."""
LARGEST = 512 << 20
"""Bytes that a member may have unpacked."""
PIECE = 1 << 20
GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"


ENDINGS = (".gz", ".bz2", ".zst", ".zstd", ".zstd.bin")


def is_packed(path: str) -> bool:
    """By its name: the first bytes of some formats may be any."""
    return path.lower().endswith(ENDINGS)


@dataclass(frozen=True, slots=True)
class Members(StoredFormat):
    """Where the members of a compressed file stand."""

    name = "members"

    def find(self, file: OpenFile, start: int) -> Iterator[Found]:
        at = start
        while at < file.size:
            head = file.read(at, min(4, file.size - at))
            if head.startswith(GZIP):
                stop = _member_end(file, at, zlib.decompressobj(31))
            elif head.startswith(BZIP2):
                stop = _member_end(file, at, bz2.BZ2Decompressor())
            elif head == ZSTD:
                stop = _zstd_end(file, at)
            elif len(head) == 4 and head[1:] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
                at += 8 + int.from_bytes(file.read(at + 4, 4), "little")  # a note between members, not data
                continue
            elif not head.strip(b"\0"):
                break  # filled up with zeros
            else:
                raise DamagedFile(f"{file.path} is damaged: no compressed member begins at byte {at}")
            yield Found(Spans.of([at], [stop - at]), stop)
            at = stop

    def decode(self, data: bytes, file: OpenFile, start: int) -> bytes:
        return _unpack(data, file.path, start)


class UnpackedFile(OpenFile):
    """A packed file, read like what was packed into it. `members` are those of the packed file."""

    def __init__(self, path: str, members: Spans) -> None:
        super().__init__(path)
        self._members = members
        sizes = [
            self._unpacked_size(*span) for span in zip(members.starts.tolist(), members.sizes.tolist(), strict=True)
        ]
        self._ends: Ints = np.cumsum(np.array(sizes, np.int64)) if sizes else np.zeros(0, np.int64)
        self.size = self.bytes = sum(sizes)
        self.held = max(sizes, default=0)
        if self.held > LARGEST:
            raise DamagedFile(
                f"{path} is compressed in one piece of {self.held} bytes, so no sample of it can be read by itself: "
                "decompress it, compress it in smaller members (bgzip), or read it as a stream with "
                "Pipe.files(...).open_files().decompress()"
            )

    def cuts(self, step: int) -> Ints:
        ends = self._ends
        # Small members are one unit together.
        return ends[np.flatnonzero(np.diff(ends // step, append=-1))] if len(ends) else ends

    def read(self, start: int, size: int) -> bytes:
        if size == 0:
            return b""
        if start + size > self.size:
            raise DamagedFile(f"{self.path} has {self.size} unpacked bytes: {size} from byte {start} on are not there")
        parts = []
        number = int(np.searchsorted(self._ends, start, side="right"))
        while size > 0:
            member = self._member(number)
            first = start - (int(self._ends[number - 1]) if number else 0)
            part = member[first : first + size]
            parts.append(part)
            start, size, number = start + len(part), size - len(part), number + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _member(self, number: int) -> bytes:
        key = (self.path, self.state, number)
        found = _members.get(key)
        if found is None:
            start, size = int(self._members.starts[number]), int(self._members.sizes[number])
            found = _unpack(OpenFile.read(self, start, size), self.path, start)
            expected = int(self._ends[number]) - (int(self._ends[number - 1]) if number else 0)
            if len(found) != expected:
                raise DamagedFile(
                    f"{self.path} is damaged: the member at byte {start} holds {len(found)} bytes and says {expected}"
                )
            _members.keep(key, found)
        return found

    def _unpacked_size(self, start: int, size: int) -> int:
        head = OpenFile.read(self, start, min(18, size))
        if head.startswith(GZIP):
            return int.from_bytes(OpenFile.read(self, start + size - 4, 4), "little")
        known = None if head.startswith(BZIP2) else _zstd_head(head, self.path, start)[1]
        return known if known is not None else len(_unpack(OpenFile.read(self, start, size), self.path, start))


class _Unpacked:
    """Members that were unpacked last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, FileState, int], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: tuple[str, FileState, int]) -> bytes | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: tuple[str, FileState, int], data: bytes) -> None:
        with self._lock:
            if key not in self._kept:
                self._bytes += len(data)
            self._kept[key] = data
            while self._bytes > HELD and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])


_members = _Unpacked()


def _unpack(data: bytes, path: str, start: int) -> bytes:
    try:
        if data.startswith(GZIP):
            return zlib.decompress(data, 31)
        if data.startswith(BZIP2):
            return bz2.decompress(data)
        found: bytes = need("zstd", "zstandard").ZstdDecompressor().decompressobj().decompress(data)
        return found
    except Exception as error:
        if type(error).__name__ not in ("error", "ZstdError") and not data.startswith(BZIP2):
            raise
        raise DamagedFile(
            f"{path} is damaged: the compressed member at byte {start} cannot be unpacked ({error})"
        ) from None


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _member_end(file: OpenFile, start: int, unpacker: _Unpacker) -> int:
    """The first byte after a member of gzip or bzip2. Only unpacking it tells."""
    at = start
    while not unpacker.eof:
        if at >= file.size:
            raise DamagedFile(f"{file.path} is cut off at byte {file.size}, in the member that begins at byte {start}")
        data = file.read(at, min(PIECE, file.size - at))
        at += len(data)
        try:
            unpacker.decompress(data)
        except (zlib.error, OSError, ValueError) as error:
            raise DamagedFile(f"{file.path} is damaged in the member that begins at byte {start} ({error})") from None
    return at - len(unpacker.unused_data)


def _zstd_end(file: OpenFile, start: int) -> int:
    """The first byte after a frame: its blocks say how long they are."""
    size, _, sums = _zstd_head(file.read(start, min(18, file.size - start)), file.path, start)
    at, last = start + size, False
    while not last:
        if at + 3 > file.size:
            raise DamagedFile(f"{file.path} is cut off at byte {file.size}, in the frame that begins at byte {start}")
        head = int.from_bytes(file.read(at, 3), "little")
        last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else length)  # (a block of one repeated byte)
    at += 4 * sums
    if at > file.size:
        raise DamagedFile(f"{file.path} is cut off at byte {file.size}, in the frame that begins at byte {start}")
    return at


def _zstd_head(head: bytes, path: str, start: int) -> tuple[int, int | None, bool]:
    """Of a frame: the size of its header, its unpacked size if it says so, and whether a check sum ends it."""
    if len(head) < 6:
        raise DamagedFile(f"{path} is cut off in the frame that begins at byte {start}")
    flags = head[4]
    single = bool(flags & 0x20)
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (int(single), 2, 4, 8)[flags >> 6]
    known = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0) if width else None
    return at + width, known, bool(flags & 4)
