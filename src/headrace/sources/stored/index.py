"""Index: what a scan of a stored file has found, kept in a file beside it.

    data.jsonl               data.jsonl.index    one line of JSON, then the spans: 16 bytes a sample

An index belongs to one file as it was: its size and the time of its last change are in the index, and a file that has
changed since is refused, because positions would point at other samples. One that an older version has made is made
again: its rules may have lost samples. One process scans, the others wait for it.
While it runs, what it finds is appended, and every few hundred megabytes the head says how much of it counts: a scan
that was killed goes on from there.
"""

import json
import logging
import os
import zlib
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.sources import lock
from headrace.sources.atomic import atomic_write
from headrace.sources.stored.format import DamagedFile, OpenFile, Spans, StoredFormat
from headrace.sources.stored.packed import Members, UnpackedFile, is_packed

VERSION = 3
"""Higher whenever samples are found by another rule: an index of a lower version is made again."""
ENDING = ".index"
SAVE_EVERY = 256 << 20
"""Bytes of the file after which what was found so far is written down."""
LOCK_TIMEOUT = 24 * 3600.0
"""Seconds that a process waits for another one that scans."""
HEAD = 512
"""Bytes before the spans: one line of JSON, filled up with blanks."""
log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class _Header:
    """What an index says of itself and of its file."""

    version: int
    format: str
    size: int
    changed: int
    count: int
    upto: int
    """The byte that the scan has reached; the size of the file when it is done."""
    sum: int
    """The check sum of the spans: one that is wrong would be a wrong sample, and no other would notice."""


def spans_of(path: str, form: StoredFormat, folder: str | None = None) -> Spans:
    """Where the samples of a file are: by the file's own table, by an index, or by a scan that leaves an index.

    Indices lie beside their files, or in `folder`.
    """
    with open_stored(path, form, folder) as file:
        return spans_in(file, form, folder)


def open_stored(path: str, form: StoredFormat, folder: str | None) -> OpenFile:
    """The file; one that is compressed as what was packed into it."""
    if not is_packed(path) or not form.packable:
        return form.open(path)
    return UnpackedFile(path, spans_of(path, Members(), folder))


def spans_in(file: OpenFile, form: StoredFormat, folder: str | None) -> Spans:
    """Where the samples of an open file are."""
    path = file.path
    if not form.scanned and not is_packed(path):
        (table,) = form.find(file, 0)
        return table
    target = _index_path(path, form, folder)
    found = _load(target, file, form)
    if found is None or found[0].upto < file.size:
        try:
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            with lock.hold(f"{target}.lock", LOCK_TIMEOUT):
                found = _load(target, file, form)  # another process may have made it meanwhile
                if found is None or found[0].upto < file.size:
                    _scan(target, file, form, found)
        except PermissionError as error:
            raise BadOption(
                f"the index of {path} cannot be written beside it ({error.strerror}): give index='a folder'"
            ) from error
        found = _load(target, file, form, checked=True)
        assert found is not None
    return found[1]


def _index_path(path: str, form: StoredFormat, folder: str | None) -> str:
    ending = f".{form.name}{ENDING}" if isinstance(form, Members) else ENDING
    if folder is None:
        return path + ending
    whole = os.path.abspath(path)
    return os.path.join(folder, whole.strip(os.sep).replace("%", "%25").replace(os.sep, "%2F") + ending)


def _scan(target: str, file: OpenFile, form: StoredFormat, begun: tuple[_Header, Spans] | None) -> None:
    header = _Header(VERSION, form.name, file.state.size, file.state.changed, 0, 0, 0) if begun is None else begun[0]
    if begun is None:
        with atomic_write(target, "wb") as stream:
            stream.write(_header_bytes(header))
    if header.upto:
        log.info("the index of %s goes on at %d of %d bytes", file.path, header.upto, file.size)
    fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, HEAD + 16 * header.count)  # (what was appended when the scan was killed does not count)
        count, check = header.count, header.sum
        for found in form.find(file, header.upto):
            # At once, while it is in the processor's cache.
            rows = _rows(found)
            _write_at(fd, rows, HEAD + 16 * count)
            count, check = count + len(found.starts), zlib.crc32(rows, check)
            upto = int(found.starts[-1] + found.sizes[-1]) if len(found.starts) else 0
            if upto - header.upto >= SAVE_EVERY:
                header = replace(header, count=count, upto=upto, sum=check)
                _write_at(fd, memoryview(_header_bytes(header)), 0)
                log.info("indexing %s: %d %%", file.path, 100 * header.upto // max(1, file.size))
        _write_at(fd, memoryview(_header_bytes(replace(header, count=count, upto=file.size, sum=check))), 0)
    finally:
        os.close(fd)


def _rows(spans: Spans) -> memoryview:
    rows = np.empty((len(spans.starts), 2), "<i8")
    rows[:, 0], rows[:, 1] = spans.starts, spans.sizes
    return rows.reshape(-1).view(np.uint8).data


def _write_at(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _header_bytes(header: _Header) -> bytes:
    said = asdict(header)
    return json.dumps({**said, "check": _check_sum(said)}).encode().ljust(HEAD - 1) + b"\n"


def _check_sum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said).encode())


def _load(target: str, file: OpenFile, form: StoredFormat, *, checked: bool = False) -> tuple[_Header, Spans] | None:
    """What an index holds, if there is one; an error if it does not belong to the file as it is now.

    `checked`: this process has just made it.
    """
    try:
        with open(target, "rb") as stream:
            header = _parsed_header(stream.read(HEAD), target)
            stored = os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        return None
    if header.version < VERSION and header.format == form.name:
        log.info(
            "%s is of version %d, by whose rules samples were found otherwise: it is made again", target, header.version
        )
        return None
    remove = f"remove {target} to have it made anew"
    if (header.version, header.format) != (VERSION, form.name):
        raise DamagedFile(
            f"{target} is an index of version {header.version} for {header.format!r}, not of version {VERSION} for "
            f"{form.name!r}: {remove}"
        )
    if (header.size, header.changed) != (file.state.size, file.state.changed):
        raise DamagedFile(
            f"{file.path} has changed since its index was made ({header.size} bytes then, {file.size} now): positions "
            f"would point at other samples; {remove}"
        )
    wanted = HEAD + 16 * header.count
    if not (stored == wanted or (stored > wanted and header.upto < file.size)) or not 0 <= header.upto <= file.size:
        raise DamagedFile(f"{target} has {stored} bytes where {header.count} samples need others: {remove}")
    table = np.memmap(target, "<i8", "r", HEAD, (header.count, 2)) if header.count else np.zeros((0, 2), np.int64)
    if not checked and zlib.crc32(table.reshape(-1).view(np.uint8).data) != header.sum:
        raise DamagedFile(f"{target} is damaged, its check sum differs: {remove}")
    spans = Spans(np.asarray(table[:, 0]), np.asarray(table[:, 1]))
    if header.count and not checked and not _in_order(spans, file.size):
        raise DamagedFile(f"{target} says that samples lie outside {file.path}: {remove}")
    return header, spans


def _in_order(spans: Spans, size: int) -> bool:
    ends = spans.starts + spans.sizes
    in_order = bool((spans.starts[1:] >= ends[:-1]).all())
    return in_order and int(spans.starts[0]) >= 0 and int(spans.sizes.min()) >= 0 and int(ends[-1]) <= size


def _parsed_header(head: bytes, target: str) -> _Header:
    try:
        said: Any = json.loads(head)
        check = said.pop("check", None)
        header = _Header(**said)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{target} is not an index, or a damaged one: remove it to have it made anew") from error
    numbers = (header.version, header.size, header.changed, header.count, header.upto, header.sum)
    if check != _check_sum(asdict(header)) or not all(type(number) is int and number >= 0 for number in numbers):
        raise DamagedFile(f"{target} is a damaged index: remove it to have it made anew")
    return header
