"""Index: the spans that a scan of a stored file has found, kept in a file beside it.

    data.jsonl               data.jsonl.index    one line of JSON (the header), then the spans: 16 bytes a sample

The header has the size of the data file and the time of its last change. A data file that has changed since is refused,
because positions would point at other samples. An index of an older version is made again: its rules may have lost
samples. One process scans, the others wait for it.

A scan appends the spans that it finds, and every few hundred megabytes writes into the header how many of them count: a
scan that was killed goes on from there.
"""

import errno
import json
import logging
import os
import zlib
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.sources import lock
from headrace.sources.atomic import atomic_write
from headrace.sources.bytes import ByteFile, DamagedFile, FileState, Local, local_stream, mapped
from headrace.sources.stored.format import Spans, StoredFormat

VERSION = 4
"""Higher whenever samples are found by another rule: an index of a lower version is made again."""
ENDING = ".index"
FOLDER = "~/.cache/headrace"
"""Where indices of remote files are kept, unless a folder is given."""
SAVE_EVERY = 256 << 20
"""Bytes of the data file after which a scan writes into the header how far it has come."""
LOCK_TIMEOUT = 24 * 3600.0
"""Seconds that a process waits for another one that scans the same file."""
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Errors that a place has in which no index can be written."""
LONGEST, SHOWN = 236, 40
"""Bytes of a path that is, as it is, the name of an index in another folder; letters that are shown of a longer one."""
HEAD = 512
"""Bytes before the spans: one line of JSON, filled up with blanks."""
log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of an index."""

    version: int
    format: str
    size: int
    changed: int
    count: int
    upto: int
    """The byte that the scan has reached; the size of the file when it is done."""
    sum: int
    """The check sum of the spans: a wrong span would be a wrong sample, and nothing else would notice."""


def spans_in(file: ByteFile, format: StoredFormat, folder: str | None) -> Spans:
    """Where the samples of an open file are: by the file's own table, by an index, or by a scan that leaves an index.

    Indices lie beside their files, or in `folder`.
    """
    path, remote = file.path, not isinstance(file, Local)
    if not format.scanned and not remote:  # (of a remote file, its own table is kept here as well)
        (table,) = format.find(file, 0)
        return table
    target = _index_path(path, os.path.expanduser(FOLDER) if remote and folder is None else folder, remote)
    try:
        found = _load(target, file, format)
        if found is not None and found[0].upto == file.size:
            return found[1]
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with lock.hold(f"{target}.lock", LOCK_TIMEOUT):
            found = _load(target, file, format)  # another process may have made it meanwhile
            if found is not None and found[0].upto == file.size:
                return found[1]
            return _scan(target, file, format, None if found is None else found[0])
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise BadOption(
            f"the index of {path} cannot be written to {os.path.dirname(target) or '.'} ({error.strerror}): give "
            "index='a folder' where it can"
        ) from error


def _changed(state: FileState) -> int:
    """The time of the last change of a local file; of a remote one, a number that stands for its tag."""
    return state.changed or int.from_bytes(blake2b(state.tag.encode(), digest_size=7).digest())


def _index_path(path: str, folder: str | None, remote: bool) -> str:
    if folder is None:
        return path + ENDING
    name = path.partition("?")[0] if remote else os.path.abspath(path)
    name = name.strip(os.sep).replace("%", "%25").replace(os.sep, "%2F")
    if len(whole := os.fsencode(name)) > LONGEST:
        name = f"{blake2b(whole, digest_size=12).hexdigest()}%{name[-SHOWN:]}"  # (no % stands so in other names)
    return os.path.join(folder, name + ENDING)


def _scan(target: str, file: ByteFile, format: StoredFormat, header: _Header | None) -> Spans:
    """Find all spans, from where an interrupted scan with this header has ended, and write them into the index."""
    if header is None:
        header = _Header(VERSION, format.name, file.state.size, _changed(file.state), 0, 0, 0)
        with atomic_write(target, "wb") as stream:
            stream.write(_header_bytes(header))
    if header.upto:
        log.info("the index of %s goes on at %d of %d bytes", file.path, header.upto, file.size)
    fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, HEAD + 16 * header.count)  # (what was appended when the scan was killed does not count)
        count, check = header.count, header.sum
        for found in format.find(file.forward(), header.upto):
            rows = _rows(found)  # at once, while they are in the processor's cache
            _write_at(fd, rows, HEAD + 16 * count)
            count, check = count + len(found.starts), zlib.crc32(rows, check)
            upto = int(found.starts[-1] + found.sizes[-1]) if len(found.starts) else 0
            if format.scanned and upto - header.upto >= SAVE_EVERY:
                header = replace(header, count=count, upto=upto, sum=check)
                _write_at(fd, memoryview(_header_bytes(header)), 0)
                log.info("indexing %s: %d %%", file.path, 100 * header.upto // max(1, file.size))
        _write_at(fd, memoryview(_header_bytes(replace(header, count=count, upto=file.size, sum=check))), 0)
    finally:
        os.close(fd)
    return _columns(_mapped(target, count))


def _mapped(target: str, count: int) -> NDArray[np.int64]:
    """The spans in an index, as (samples, 2) numbers that are not read into memory."""
    table: NDArray[np.int64] = mapped(target)[HEAD : HEAD + 16 * count].view("<i8").reshape(count, 2)
    return table


def _columns(table: NDArray[np.int64]) -> Spans:
    return Spans(np.asarray(table[:, 0]), np.asarray(table[:, 1]))


def _rows(spans: Spans) -> memoryview:
    rows = np.empty((len(spans.starts), 2), "<i8")
    rows[:, 0], rows[:, 1] = spans.starts, spans.sizes
    return rows.reshape(-1).view(np.uint8).data


def _write_at(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _header_bytes(header: _Header) -> bytes:
    fields = asdict(header)
    return json.dumps({**fields, "check": _check_sum(fields)}).encode().ljust(HEAD - 1) + b"\n"


def _check_sum(fields: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields).encode())


def _load(target: str, file: ByteFile, format: StoredFormat) -> tuple[_Header, Spans] | None:
    """The content of an index, or None if there is none; an error if it does not belong to the file as it is now."""
    try:
        with local_stream(target) as stream:
            header = _parsed_header(stream.read(HEAD), target)
            stored = os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        return None
    if header.version < VERSION and header.format == format.name:
        log.info(
            "%s is of version %d, by whose rules samples were found otherwise: it is made again", target, header.version
        )
        return None
    remove = f"remove {target} to have it made anew"
    if (header.version, header.format) != (VERSION, format.name):
        raise DamagedFile(
            f"{target} is an index of version {header.version} for {header.format!r}, not of version {VERSION} for "
            f"{format.name!r}: {remove}"
        )
    if (header.size, header.changed) != (file.state.size, _changed(file.state)):
        raise DamagedFile(
            f"{file.path} has changed since its index was made ({header.size} bytes then, {file.size} now): positions "
            f"would point at other samples; {remove}"
        )
    wanted = HEAD + 16 * header.count
    if not (stored == wanted or (stored > wanted and header.upto < file.size)) or not 0 <= header.upto <= file.size:
        raise DamagedFile(f"{target} has {stored} bytes where {header.count} samples need others: {remove}")
    table = _mapped(target, header.count)
    if zlib.crc32(table.reshape(-1).view(np.uint8).data) != header.sum:
        raise DamagedFile(f"{target} is damaged, its check sum differs: {remove}")
    spans = _columns(table)
    if header.count and not _in_order(spans, file.size):
        raise DamagedFile(f"{target} says that samples lie outside {file.path}: {remove}")
    return header, spans


def _in_order(spans: Spans, size: int) -> bool:
    ends = spans.starts + spans.sizes
    in_order = bool((spans.starts[1:] >= ends[:-1]).all())
    return in_order and int(spans.starts[0]) >= 0 and int(spans.sizes.min()) >= 0 and int(ends[-1]) <= size


def _parsed_header(head: bytes, target: str) -> _Header:
    try:
        fields: Any = json.loads(head)
        check = fields.pop("check", None)
        header = _Header(**fields)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{target} is not an index, or a damaged one: remove it to have it made anew") from error
    numbers = (header.version, header.size, header.changed, header.count, header.upto, header.sum)
    if check != _check_sum(asdict(header)) or not all(type(number) is int and number >= 0 for number in numbers):
        raise DamagedFile(f"{target} is a damaged index: remove it to have it made anew")
    return header
