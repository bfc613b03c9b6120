"""Sparse files in tar archives: the archive holds their pieces, and a map that says where these stand in the file.

GNU        in the header, 4 pieces; in blocks after it, 21 more each
PAX 0.0    records GNU.sparse.offset and GNU.sparse.numbytes, once for each piece
PAX 0.1    record GNU.sparse.map: offset,bytes,offset,bytes ...
PAX 1.0    lines in front of the data: how many pieces, then offset and bytes of each
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.sources.tar_fields import BLOCK, decimal, number

PREFIX = "GNU.sparse."
REPEATED = ("GNU.sparse.offset", "GNU.sparse.numbytes")
MAP = "GNU.sparse.map"
LONGEST = 1 << 20
"""The most bytes that a map may have."""
Block = Callable[[int], bytes]
"""Reads a block of the archive, by its first byte."""


class SparseMap(NamedTuple):
    size: int
    """Of the whole file, holes included."""
    pieces: tuple[tuple[int, int], ...]
    """First byte and size of each."""
    data: int
    """Where the pieces begin in the archive: after the map."""

    def filled(self, data: bytes) -> bytes:
        """The whole file, out of its pieces."""
        whole, at = bytearray(self.size), 0
        for first, size in self.pieces:
            whole[first : first + size] = data[at : at + size]
            at += size
        return bytes(whole)


def gnu_map(header: bytes, after: int, stored: int, block: Block) -> SparseMap:
    """The map of a member of GNU's kind, whose header ends at byte `after`."""
    numbers, at, more = _numbers(header[386:482]), after, header[482]
    while more:
        extension = block(at)
        numbers += _numbers(extension[:504])
        at, more = at + BLOCK, extension[504]
        _check_length(at - after)
    return _checked(number(header[483:495]), numbers, stored, at)


def pax_map(fields: Mapping[str, bytes], data: int, stored: int, block: Block) -> SparseMap:
    """The map of a member whose PAX header has these fields and whose data begin at byte `data`."""
    size = decimal(fields.get("GNU.sparse.realsize") or fields.get("GNU.sparse.size") or b"")
    if MAP in fields:
        return _checked(size, [decimal(digits) for digits in fields[MAP].split(b",")], stored, data)
    lines, at, wanted = b"", data, 1
    while lines.count(b"\n") < wanted:
        lines += block(at)
        at += BLOCK
        _check_length(at - data)
        if wanted == 1 and b"\n" in lines:
            wanted += 2 * decimal(lines[: lines.index(b"\n")])
    return _checked(size, [decimal(digits) for digits in lines.split(b"\n")[1:wanted]], stored - (at - data), at)


def _numbers(fields: bytes) -> list[int]:
    return [number(fields[at : at + 12]) for at in range(0, len(fields), 12) if fields[at]]


def _check_length(size: int) -> None:
    if size > LONGEST:
        raise ValueError(f"the map of a sparse file has more than {LONGEST} bytes")


def _checked(size: int, numbers: Sequence[int], stored: int, data: int) -> SparseMap:
    pieces = tuple((first, count) for first, count in zip(numbers[::2], numbers[1::2], strict=True) if count)
    at = 0
    for first, count in pieces:
        if first < at:
            raise ValueError("the map of a sparse file is not in order")
        at = first + count
    if at > size or sum(count for _, count in pieces) > stored:
        raise ValueError("the map of a sparse file has more bytes than the file")
    return SparseMap(size, pieces, data)
