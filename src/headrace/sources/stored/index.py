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
from headrace.sources.stored.form import DamagedFile, OpenFile, Spans, StoredFormat
from headrace.sources.stored.packed import Members, UnpackedFile, is_packed
from headrace.sources.whole import whole

VERSION = 3
"""Higher whenever samples are found by another rule: an index of a lower version is made again."""
ENDING = ".index"
OFTEN = 256 << 20
"""Bytes of the file after which what was found so far is written down."""
PATIENCE = 24 * 3600.0
"""Seconds that a process waits for another one that scans."""
HEAD = 512
"""Bytes before the spans: one line of JSON, filled up with blanks."""
log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class _About:
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
    with opened(path, form, folder) as file:
        return spans_in(file, form, folder)


def opened(path: str, form: StoredFormat, folder: str | None) -> OpenFile:
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
    target = _place(path, form, folder)
    found = _load(target, file, form)
    if found is None or found[0].upto < file.size:
        try:
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            with lock.hold(f"{target}.lock", PATIENCE):
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


def _place(path: str, form: StoredFormat, folder: str | None) -> str:
    ending = f".{form.name}{ENDING}" if isinstance(form, Members) else ENDING
    if folder is None:
        return path + ending
    whole = os.path.abspath(path)
    return os.path.join(folder, whole.strip(os.sep).replace("%", "%25").replace(os.sep, "%2F") + ending)


def _scan(target: str, file: OpenFile, form: StoredFormat, begun: tuple[_About, Spans] | None) -> None:
    about = _About(VERSION, form.name, file.state.size, file.state.changed, 0, 0, 0) if begun is None else begun[0]
    if begun is None:
        with whole(target, "wb") as stream:
            stream.write(_head(about))
    if about.upto:
        log.info("the index of %s goes on at %d of %d bytes", file.path, about.upto, file.size)
    fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, HEAD + 16 * about.count)  # (what was appended when the scan was killed does not count)
        count, check = about.count, about.sum
        for found in form.find(file, about.upto):
            # At once, while it is in the processor's cache.
            rows = _rows(found)
            _write_at(fd, rows, HEAD + 16 * count)
            count, check = count + len(found.starts), zlib.crc32(rows, check)
            upto = int(found.starts[-1] + found.sizes[-1]) if len(found.starts) else 0
            if upto - about.upto >= OFTEN:
                about = replace(about, count=count, upto=upto, sum=check)
                _write_at(fd, memoryview(_head(about)), 0)
                log.info("indexing %s: %d %%", file.path, 100 * about.upto // max(1, file.size))
        _write_at(fd, memoryview(_head(replace(about, count=count, upto=file.size, sum=check))), 0)
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


def _head(about: _About) -> bytes:
    said = asdict(about)
    return json.dumps({**said, "check": _check_sum(said)}).encode().ljust(HEAD - 1) + b"\n"


def _check_sum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said).encode())


def _load(target: str, file: OpenFile, form: StoredFormat, *, checked: bool = False) -> tuple[_About, Spans] | None:
    """What an index holds, if there is one; an error if it does not belong to the file as it is now.

    `checked`: this process has just made it.
    """
    try:
        with open(target, "rb") as stream:
            about = _about(stream.read(HEAD), target)
            stored = os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        return None
    if about.version < VERSION and about.format == form.name:
        log.info(
            "%s is of version %d, by whose rules samples were found otherwise: it is made again", target, about.version
        )
        return None
    remove = f"remove {target} to have it made anew"
    if (about.version, about.format) != (VERSION, form.name):
        raise DamagedFile(
            f"{target} is an index of version {about.version} for {about.format!r}, not of version {VERSION} for "
            f"{form.name!r}: {remove}"
        )
    if (about.size, about.changed) != (file.state.size, file.state.changed):
        raise DamagedFile(
            f"{file.path} has changed since its index was made ({about.size} bytes then, {file.size} now): positions "
            f"would point at other samples; {remove}"
        )
    wanted = HEAD + 16 * about.count
    if not (stored == wanted or (stored > wanted and about.upto < file.size)) or not 0 <= about.upto <= file.size:
        raise DamagedFile(f"{target} has {stored} bytes where {about.count} samples need others: {remove}")
    table = np.memmap(target, "<i8", "r", HEAD, (about.count, 2)) if about.count else np.zeros((0, 2), np.int64)
    if not checked and zlib.crc32(table.reshape(-1).view(np.uint8).data) != about.sum:
        raise DamagedFile(f"{target} is damaged, its check sum differs: {remove}")
    spans = Spans(np.asarray(table[:, 0]), np.asarray(table[:, 1]))
    if about.count and not checked and not _sound(spans, file.size):
        raise DamagedFile(f"{target} says that samples lie outside {file.path}: {remove}")
    return about, spans


def _sound(spans: Spans, size: int) -> bool:
    ends = spans.starts + spans.sizes
    in_order = bool((spans.starts[1:] >= ends[:-1]).all())
    return in_order and int(spans.starts[0]) >= 0 and int(spans.sizes.min()) >= 0 and int(ends[-1]) <= size


def _about(head: bytes, target: str) -> _About:
    try:
        said: Any = json.loads(head)
        check = said.pop("check", None)
        about = _About(**said)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{target} is not an index, or a damaged one: remove it to have it made anew") from error
    numbers = (about.version, about.size, about.changed, about.count, about.upto, about.sum)
    if check != _check_sum(asdict(about)) or not all(type(number) is int and number >= 0 for number in numbers):
        raise DamagedFile(f"{target} is a damaged index: remove it to have it made anew")
    return about
