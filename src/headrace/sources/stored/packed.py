"""Packed files: compressed files that are read by position, member by member.

A gzip, zstd or bzip2 file is one or several members end to end, each of which can be unpacked by itself. A scan finds
once where they begin, and leaves an index as every scan does. Places are bytes of the unpacked content: the members
that hold them are unpacked, and those used last stay in memory. A file of one member has to be unpacked whole for any
sample of it, so a large one is refused: `bgzip`, `zstd --target-compressed-block-size`, or several smaller files make
more members. Brotli and Snappy, which MDS uses too, have no members: the whole file is one.
"""

import bz2
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.sources.extra import import_extra
from headrace.sources.stored.format import DamagedFile, Ints, OpenFile, Spans, StoredFormat
from headrace.tables.stored.cache import Cache

MEMORY = 256 << 20
"""Bytes of unpacked pieces that a process keeps in memory."""
LARGEST = 512 << 20
"""The most bytes that a member may have unpacked."""
PIECE = 1 << 20
GZIP, ZSTD, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh"
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What stands 4 bytes behind the start of a bzip2 file: its first block, or its end."""
BROTLI, SNAPPY = ".br", ".snappy"
"""Their first bytes do not tell how they are compressed, so the name has to."""
ENDINGS = (".gz", ".bz2", ".zst", ".zstd", ".zstd.bin", BROTLI, SNAPPY)


def is_packed(path: str) -> bool:
    """Whether a file is compressed, by its name: some formats may begin with any bytes."""
    return path.lower().endswith(ENDINGS)


def compression(file: OpenFile) -> str | None:
    """How a file is compressed, by its first bytes; None if it is not. (A name in a tar file may begin with "BZh".)"""
    head = file.read(0, min(10, file.size))
    if head.startswith(BZIP2) and head[4:] in BZIP2_BLOCKS:
        return "bzip2"
    known = {GZIP: "gzip", ZSTD: "zstd", b"\xfd7zXZ": "xz"}
    return next((name for magic, name in known.items() if head.startswith(magic)), None)


@dataclass(frozen=True, slots=True)
class Members(StoredFormat):
    """Where the members of a compressed file stand."""

    name = "members"
    packable = False

    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        at = start
        if _is_one_member(file.path) and at < file.size:
            yield Spans.of([0], [file.size])
            return
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
                if at > file.size:
                    raise DamagedFile(f"{file.path} is cut off at byte {file.size}: a note ends at byte {at}")
                continue
            elif at and head.startswith(b"\0"):
                at = _zeros_end(file, at)  # filled up behind a member; others may follow, as for Python's gzip
                continue
            else:
                raise DamagedFile(f"{file.path} is damaged: no compressed member begins at byte {at}")
            yield Spans.of([at], [stop - at])
            at = stop

    def decode(self, data: bytes, file: OpenFile, start: int) -> bytes:
        return unpack(data, file.path, start)


class PiecesFile(OpenFile):
    """A file that is unpacked in pieces. Those that were used last are kept, at most MEMORY bytes in all files."""

    def load(self, number: int) -> tuple[Any, int]:
        """Unpack a piece: its content, and how many bytes of memory it takes."""
        raise NotImplementedError

    def piece(self, number: int) -> Any:
        """A piece, unpacked now or before."""
        return _pieces.get((self.path, self.state, number), 0, lambda _: self.load(number))


_pieces: Cache[Any] = Cache(MEMORY)


class UnpackedFile(PiecesFile):
    """A compressed file that reads as its unpacked content. `members` are where its members stand, `sizes` their
    unpacked sizes, where those are known."""

    def __init__(self, path: str, members: Spans, sizes: list[int] | None = None) -> None:
        super().__init__(path)
        self._members = members
        if sizes is None:
            spans = zip(members.starts.tolist(), members.sizes.tolist(), strict=True)
            sizes = [self._unpacked_size(*span) for span in spans]
        self._ends: Ints = np.cumsum(np.array(sizes, np.int64)) if sizes else np.zeros(0, np.int64)
        self.size = self.bytes = sum(sizes)
        self.unit_memory = max(sizes, default=0)
        _check_size(path, self.unit_memory)

    def unit_ends(self, step: int) -> Ints:
        ends = self._ends
        # Neighbouring small members are one unit.
        return ends[np.flatnonzero(np.diff(ends // step, append=-1))] if len(ends) else ends

    def read(self, start: int, size: int) -> bytes:
        if size == 0:
            return b""
        if start + size > self.size:
            raise DamagedFile(f"{self.path} has {self.size} unpacked bytes: {size} from byte {start} on are not there")
        parts = []
        number = int(np.searchsorted(self._ends, start, side="right"))
        while size > 0:
            member = self.piece(number)
            first = start - (int(self._ends[number - 1]) if number else 0)
            part = member[first : first + size]
            parts.append(part)
            start, size, number = start + len(part), size - len(part), number + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, start: int, room: memoryview) -> None:
        room[:] = self.read(start, len(room))

    def load(self, number: int) -> tuple[bytes, int]:
        start, size = int(self._members.starts[number]), int(self._members.sizes[number])
        found = unpack(OpenFile.read(self, start, size), self.path, start)
        expected = int(self._ends[number]) - (int(self._ends[number - 1]) if number else 0)
        if len(found) != expected:
            raise DamagedFile(
                f"{self.path} is damaged: the member at byte {start} holds {len(found)} bytes and says {expected}"
            )
        return found, expected

    def _unpacked_size(self, start: int, size: int) -> int:
        head = OpenFile.read(self, start, min(18, size))
        known = None
        if not _is_one_member(self.path):
            if head.startswith(GZIP):
                return int.from_bytes(OpenFile.read(self, start + size - 4, 4), "little")
            known = None if head.startswith(BZIP2) else _zstd_head(head, self.path, start)[1]
        return known if known is not None else len(unpack(OpenFile.read(self, start, size), self.path, start))


def _check_size(path: str, size: int) -> None:
    """Raise if a member has more bytes unpacked than may be kept in memory."""
    if size > LARGEST:
        raise DamagedFile(
            f"{path} is compressed in one piece of {size} bytes or more, so no sample of it can be read by itself: "
            "decompress it, compress it in smaller members (bgzip), or read it as a stream with "
            "Pipe.files(...).open_files().decompress()"
        )


def _is_one_member(path: str) -> bool:
    return path.lower().endswith((BROTLI, SNAPPY))


def unpack(data: bytes, path: str, start: int) -> bytes:
    """The unpacked content of a member; `path` and `start` are its file and its first byte, for messages."""
    try:
        if path.lower().endswith(BROTLI):
            return bytes(import_extra("mds", "cramjam").brotli.decompress(data))
        if path.lower().endswith(SNAPPY):
            return bytes(import_extra("mds", "cramjam").snappy.decompress_raw(data))
        if data.startswith(GZIP):
            return zlib.decompress(data, 31)
        if data.startswith(BZIP2):
            return bz2.decompress(data)
        found: bytes = import_extra("zstd", "zstandard").ZstdDecompressor().decompressobj().decompress(data)
        return found
    except Exception as error:
        # (By name, because the packages whose errors these are may be absent.)
        if type(error).__name__ not in ("error", "ZstdError", "DecompressionError") and not data.startswith(BZIP2):
            raise
        raise DamagedFile(
            f"{path} is damaged: the compressed member at byte {start} cannot be unpacked ({error})"
        ) from None


def _member_end(file: OpenFile, start: int, unpacker: "zlib._Decompress | bz2.BZ2Decompressor") -> int:
    """The first byte after a member of gzip or bzip2, which only unpacking finds."""
    at, size = start, 0
    while not unpacker.eof:
        if at >= file.size:
            raise DamagedFile(f"{file.path} is cut off at byte {file.size}, in the member that begins at byte {start}")
        data = file.read(at, min(PIECE, file.size - at))
        at += len(data)
        try:
            size += len(unpacker.decompress(data))
        except (zlib.error, OSError, ValueError) as error:
            raise DamagedFile(f"{file.path} is damaged in the member that begins at byte {start} ({error})") from None
        _check_size(file.path, size)  # (here, because gzip keeps a size modulo 4 GB only)
    return at - len(unpacker.unused_data)


def _zeros_end(file: OpenFile, start: int) -> int:
    """The first byte from `start` on that is not zero, or the end of the file."""
    at = start
    while at < file.size:
        data = file.read(at, min(PIECE, file.size - at))
        other = data.lstrip(b"\0")
        at += len(data) - len(other)
        if other:
            break
    return at


def _zstd_end(file: OpenFile, start: int) -> int:
    """The first byte after a zstd frame, found by the lengths in the headers of its blocks."""
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
    """Of a zstd frame: the size of its header, its unpacked size if known, and whether it ends with a check sum."""
    if len(head) < 6:
        raise DamagedFile(f"{path} is cut off in the frame that begins at byte {start}")
    flags = head[4]
    single = bool(flags & 0x20)
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (int(single), 2, 4, 8)[flags >> 6]
    known = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0) if width else None
    return at + width, known, bool(flags & 4)
