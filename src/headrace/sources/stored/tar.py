"""Tar shards as WebDataset writes them: neighbouring members with the same name up to the first dot are one sample.

The members of a sample are found by the same rule as in `Pipe.shards`, so both read the same samples of an archive.

    | header 512 | data, filled up to 512 | header | data | ... | two empty blocks |

Before a header there may be others, with a long name (GNU) or other fields (PAX) of the next member. The span of a
sample reaches from the first header of its first member to the end of its last member, so a sample is one read. Sparse
members are refused: the archive leaves their holes out, so their bytes are not those of the file.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from headrace.ops.archives.webdataset import add_file, key_and_ending
from headrace.sources.stored.compressed import check_content
from headrace.sources.stored.format import DamagedFile, OpenFile, Spans, StoredFormat
from headrace.sources.stored.spans import ForwardReader, in_batches

BLOCK = 512
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
Read = Callable[[int, int], bytes]
"""Reads bytes of an archive: the first byte, and how many."""
log = logging.getLogger("headrace")


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    start: int
    """The first byte of its first header."""
    data: int
    size: int
    stop: int
    """The first byte after it and its padding."""


@dataclass(frozen=True, slots=True)
class TarShards(StoredFormat):
    name = "tar"
    endings = (".tar",)

    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        check_content(file)
        return in_batches(_samples(file, start))

    def decode(self, data: bytes, file: OpenFile, start: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}

        def read(start: int, size: int) -> bytes:
            return data[start : start + size]

        for member in members(read, 0, len(data), file.path, whole=False):
            found = key_and_ending(member.name)
            if found is not None:
                sample.setdefault("__key__", found[0])
                add_file(sample, found[0], found[1], data[member.data : member.data + member.size])
        return sample


def _samples(file: OpenFile, start: int) -> Iterator[tuple[int, int]]:
    """The first byte and the size of each sample, known when the next sample begins or the archive ends."""
    every = members(ForwardReader(file).read, start, file.size, file.path)
    keyed = ((found[0], member) for member in every if (found := key_and_ending(member.name)) is not None)
    for _, group in groupby(keyed, itemgetter(0)):
        files = [member for _, member in group]
        yield files[0].start, files[-1].stop - files[0].start


def members(read: Read, start: int, size: int, path: str, whole: bool = True) -> Iterator[Member]:
    """The regular files of an archive, from the header at `start` on; `whole`: warn if there is no end-of-archive."""
    at = first = start
    fields: dict[str, str] = {}
    """Fields of the next member that stand in headers before its own."""
    while at + BLOCK <= size:
        header = read(at, BLOCK)
        if header == EMPTY and at == first:
            _check_end(read, at, size, path)
            return
        kind, data = header[156:157], at + BLOCK
        length = _checked(header, at, path)
        if kind in WITHOUT_DATA:
            length = 0
        elif kind not in ABOUT_NEXT:
            length = int(fields.get("size", length))
        if data + length > size:
            raise DamagedFile(f"{path} is cut off at byte {size}: the member at byte {at} would end at {data + length}")
        at = data + -(-length // BLOCK) * BLOCK
        if kind in ABOUT_NEXT:
            content = read(data, length)
            fields.update({"path": _text(content.split(b"\0")[0])} if kind == LONG_NAME else _records(content))
            continue
        if kind == SPARSE or (fields and any(key.startswith("GNU.sparse.") for key in fields)):
            raise DamagedFile(
                f"{path} has a member at byte {first} that is a sparse file, whose holes the archive leaves out: pack "
                "it again without -S (--sparse), or read it as a stream with Pipe.shards(...)"
            )
        if kind in REGULAR:
            yield Member(fields.get("path") or _name(header), first, data, length, min(at, size))
        first, fields = at, {}
    if size - at > 0 or at != first:
        raise DamagedFile(f"{path} is cut off at byte {size}, in the middle of a header")
    if whole:
        log.warning("%s has no end-of-archive mark: it may be cut off between two members", path)


def _check_end(read: Read, at: int, size: int, path: str) -> None:
    """Raise unless the block of zeros at `at` is followed by another one, or by nothing; warn of data after the end."""
    # (As far as the first header of another archive, which would begin behind the padding of this one.)
    behind = read(at + BLOCK, max(0, min(RECORD + 2 * BLOCK, size - at - BLOCK)))
    second, rest = behind[:BLOCK], behind[BLOCK:]
    if second.strip(b"\0"):
        raise DamagedFile(f"{path} is damaged: a header of zeros stands at byte {at}, and more behind it")
    if rest.strip(b"\0"):
        log.warning("%s holds more after its end-of-archive, which is not read", path)


def _checked(header: bytes, at: int, path: str) -> int:
    """The size of a member; an error if its header is damaged."""
    try:
        check = int(header[148:156].split(b"\0")[0].strip() or b"0", 8)
        # (8 blanks stand for the sum itself.)
        if check != sum(header) - sum(header[148:156]) + 8 * 32:
            raise ValueError("the check sum differs")
        if header[124] & 0x80:
            return int.from_bytes(header[125:136], "big")
        return int(header[124:136].split(b"\0")[0].strip() or b"0", 8)
    except ValueError as error:
        raise DamagedFile(f"{path} is damaged: no header of a member stands at byte {at} ({error})") from error


def _name(header: bytes) -> str:
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    if prefix and header[257:262] == b"ustar":
        name = prefix + b"/" + name
    return _text(name)


def _records(content: bytes) -> dict[str, str]:
    """The records of a PAX header: `length key=value` and a newline each."""
    found = {}
    while content:
        length = int(content.split(b" ", 1)[0])
        key, _, value = content[:length].split(b" ", 1)[1].removesuffix(b"\n").partition(b"=")
        found[_text(key)] = _text(value)
        content = content[length:]
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
