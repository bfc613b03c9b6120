"""Tar archives: where their members stand. Every number in a header is checked before anything is done with it.

    | header 512 | data, filled up to 512 | header | data | ... | two empty blocks |

Before a header there may be others, with a long name (GNU) or other fields (PAX) of the next member. The standard
library ends an archive at the first header that it cannot read, as if nothing were missing. Here:

    a header that is damaged, cut, or made of zeros while members follow it     DamagedTar, with file and offset
    the file ends after a member, where two blocks of zeros should stand        a remark: members may be lost
    another archive follows the end of this one                                 a remark: it is not read
"""

import tarfile
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from headrace.sources.bytes import DamagedFile
from headrace.sources.sparse import MAP, PREFIX, REPEATED, SparseMap, gnu_map, pax_map
from headrace.sources.tar_fields import BLOCK, decimal, name_of, records, size_of, text

EMPTY = bytes(BLOCK)
RECORD = 20 * BLOCK
"""Archives are filled up to a multiple of so many bytes."""
REGULAR = (b"0", b"\0", b"7")
SPARSE = b"S"
WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices and folders: no data follows their header, whatever size it tells."""
LONG_NAME = b"L"
ABOUT_NEXT = (LONG_NAME, b"x", b"X")
"""Headers with fields of the next member. (Those of kind "g" describe the archive.)"""
HEADERS = 1 << 20
"""The most bytes that the headers of one member have together."""


class DamagedTar(DamagedFile, tarfile.ReadError):
    """An archive is damaged. (Also the error that the standard library would raise.)"""


class TarBytes(Protocol):
    """The bytes of an archive."""

    path: str
    size: int | None
    """None where it is known only at the end."""
    cure: str
    """What to do if it is damaged."""

    def read(self, start: int, size: int) -> bytes:
        """That many bytes from `start` on; fewer only where the archive ends. DamagedTar if it ends before `start`."""


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    start: int
    """The first byte of its first header."""
    data: int
    size: int
    """Bytes of its data in the archive."""
    stop: int
    """The first byte after it and its padding."""
    holes: SparseMap | None
    """Of a sparse file, whose holes the archive leaves out."""

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return self.size if self.holes is None else self.holes.size


def damaged(archive: TarBytes, at: int, what: object) -> DamagedTar:
    return DamagedTar(f"{archive.path}, byte {at}: {what}; {archive.cure}")


def members(archive: TarBytes, start: int, remark: Callable[[str], None]) -> Iterator[Member]:
    """The regular files of an archive, from the header at `start` on. `remark` is told what is odd, but no error."""
    at = start
    while header := archive.read(at, BLOCK):
        if header == EMPTY:
            _check_end(archive, at, remark)
            return
        if len(header) < BLOCK:
            raise damaged(archive, at, "it is cut off in the middle of a header")
        try:
            member, stop = _member(archive, at, header)
        except DamagedFile:
            raise
        except ValueError as error:
            raise damaged(archive, at, error) from None
        if member is not None:
            yield member
            if archive.size is None:
                archive.read(member.data + member.size, 0)  # (an error if it ends before)
        at = stop
    if not at:
        raise damaged(archive, 0, "it is empty")
    remark("has no end-of-archive mark: it may be cut off between two members")


def _member(archive: TarBytes, first: int, header: bytes) -> tuple[Member | None, int]:
    """The member whose headers begin at `first`, if it is a regular file, and where the next one begins."""

    def block(at: int) -> bytes:
        found = archive.read(at, BLOCK)
        if len(found) < BLOCK:
            raise damaged(archive, at, "it is cut off in the middle of a header")
        return found

    at, fields = first, dict[str, bytes]()
    while (kind := header[156:157]) in ABOUT_NEXT:
        size = _size(header, archive, at)
        if at + BLOCK + size - first > HEADERS:
            raise damaged(archive, at, f"the headers of one member have more than {HEADERS} bytes")
        content = archive.read(at + BLOCK, size)
        fields |= {"path": content.split(b"\0")[0]} if kind == LONG_NAME else _fields(content)
        at = _filled_up(at + BLOCK + size)
        header = block(at)
    size, data = _size(header, archive, at), at + BLOCK
    name = text(fields.get("GNU.sparse.name") or fields.get("path") or b"") or name_of(header)
    if kind in WITHOUT_DATA or (kind == b"\0" and name.endswith("/")):
        return None, data
    if "size" in fields:
        size = decimal(fields["size"])
    holes = None
    if kind == SPARSE:
        holes = gnu_map(header, data, size, block)
        data = holes.data
    elif any(key.startswith(PREFIX) for key in fields):
        holes = pax_map(fields, data, size, block)
        size, data = size - (holes.data - data), holes.data
    end, stop = data + size, _filled_up(data + size)
    if archive.size is not None:
        if end > archive.size:
            raise damaged(archive, first, f"it is cut off at byte {archive.size}, its member would end at byte {end}")
        stop = min(stop, archive.size)
    regular = kind in REGULAR or kind == SPARSE
    return (Member(name, first, data, size, stop, holes) if regular else None), stop


def _size(header: bytes, archive: TarBytes, at: int) -> int:
    try:
        return size_of(header)
    except ValueError as error:
        raise damaged(archive, at, error) from None


def _fields(content: bytes) -> dict[str, bytes]:
    """The fields of a PAX header; those that describe a sparse file piece by piece as one."""
    found, pieces = dict[str, bytes](), []
    for key, value in records(content):
        if key in REPEATED:
            pieces.append(value)
        else:
            found[key] = value
    return {**found, MAP: b",".join(pieces)} if pieces else found


def _filled_up(at: int) -> int:
    return -(-at // BLOCK) * BLOCK


def _check_end(archive: TarBytes, at: int, remark: Callable[[str], None]) -> None:
    """Raise unless the block of zeros at `at` is followed by another one, or by nothing."""
    # (As far as the first header of another archive, which would begin behind the padding of this one.)
    after = archive.read(at + BLOCK, RECORD + 2 * BLOCK)
    if after[:BLOCK].strip(b"\0"):
        raise damaged(archive, at, "a header of zeros, and more after it")
    if after[BLOCK:].strip(b"\0"):
        remark("holds more after its end-of-archive, which is not read: unpack it with `tar -i`")
