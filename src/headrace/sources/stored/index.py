"""Index: what a scan of a stored file has found, kept in a file beside it.

    data.jsonl               data.jsonl.index    one line of JSON, then the spans: 16 bytes a sample

An index belongs to one file as it was: its size and the time of its last change are in the index, and a file that has
changed since is refused, because positions would point at other samples. While a scan runs, what it has found is
written every few hundred megabytes; a scan that was killed goes on from there. A file under its name is always whole.
One process scans, the others wait for it.
"""

import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.sources import lock
from headrace.sources.stored.form import DamagedFile, FileState, OpenFile, Spans, StoredFormat
from headrace.sources.whole import whole

VERSION = 1
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


def spans_of(path: str, form: StoredFormat, folder: str | None = None, state: FileState | None = None) -> Spans:
    """Where the samples of a file are: by the file's own table, by an index, or by a scan that leaves an index.

    Indices lie beside their files, or in `folder`.
    """
    with OpenFile(path) as file:
        file.check(state or file.state)
        if not form.scanned:
            return _joined([found.spans for found in form.find(file, 0)])
        target = _place(path, folder)
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
            found = _load(target, file, form)
            assert found is not None
        return found[1]


def _place(path: str, folder: str | None) -> str:
    if folder is None:
        return path + ENDING
    whole = os.path.abspath(path)
    return os.path.join(folder, whole.strip(os.sep).replace("%", "%25").replace(os.sep, "%2F") + ENDING)


def _scan(target: str, file: OpenFile, form: StoredFormat, begun: tuple[_About, Spans] | None) -> None:
    parts = [begun[1]] if begun else []
    upto = written = begun[0].upto if begun else 0
    if upto:
        log.info("the index of %s goes on at %d of %d bytes", file.path, upto, file.size)
    for found in form.find(file, upto):
        parts.append(found.spans)
        upto = found.upto
        if upto - written >= OFTEN:
            _write(target, file, form, parts, upto)
            written = upto
            log.info("indexing %s: %d %%", file.path, 100 * upto // max(1, file.size))
    _write(target, file, form, parts, file.size)


def _write(target: str, file: OpenFile, form: StoredFormat, parts: list[Spans], upto: int) -> None:
    spans = _joined(parts)
    parts[:] = [spans]
    about = _About(VERSION, form.name, *file.state, len(spans.starts), upto)
    with whole(target, "wb") as stream:
        stream.write(json.dumps(asdict(about)).encode().ljust(HEAD - 1) + b"\n")
        stream.write(np.ascontiguousarray(spans.starts, "<i8").data)
        stream.write(np.ascontiguousarray(spans.sizes, "<i8").data)


def _joined(parts: list[Spans]) -> Spans:
    if len(parts) == 1:
        return parts[0]
    starts = [part.starts for part in parts] or [np.zeros(0, np.int64)]
    sizes = [part.sizes for part in parts] or [np.zeros(0, np.int64)]
    return Spans(np.concatenate(starts), np.concatenate(sizes))


def _load(target: str, file: OpenFile, form: StoredFormat) -> tuple[_About, Spans] | None:
    """What an index holds, if there is one; an error if it does not belong to the file as it is now."""
    try:
        with open(target, "rb") as stream:
            about = _about(stream.read(HEAD), target)
            stored = os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        return None
    remove = f"remove {target} to have it made anew"
    if (about.version, about.format) != (VERSION, form.name):
        raise DamagedFile(
            f"{target} is an index of version {about.version} for {about.format!r}, not of version {VERSION} for "
            f"{form.name!r}: {remove}"
        )
    if (about.size, about.changed) != file.state:
        raise DamagedFile(
            f"{file.path} has changed since its index was made ({about.size} bytes then, {file.size} now): positions "
            f"would point at other samples; {remove}"
        )
    if stored != HEAD + 16 * about.count or not 0 <= about.upto <= file.size:
        raise DamagedFile(f"{target} has {stored} bytes where {about.count} samples need others: {remove}")
    table = np.memmap(target, "<i8", "r", HEAD, (2, about.count)) if about.count else np.zeros((2, 0), np.int64)
    spans = Spans(table[0], table[1])
    if about.count and not _sound(spans, file.size):
        raise DamagedFile(f"{target} says that samples lie outside {file.path}: {remove}")
    return about, spans


def _sound(spans: Spans, size: int) -> bool:
    ends = spans.starts + spans.sizes
    in_order = bool((spans.starts[1:] >= ends[:-1]).all())
    return in_order and int(spans.starts[0]) >= 0 and int(spans.sizes.min()) >= 0 and int(ends[-1]) <= size


def _about(head: bytes, target: str) -> _About:
    try:
        said: Any = json.loads(head)
        about = _About(**said)
    except (ValueError, TypeError) as error:
        raise DamagedFile(f"{target} is not an index, or a damaged one: remove it to have it made anew") from error
    numbers = (about.version, about.size, about.changed, about.count, about.upto)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise DamagedFile(f"{target} is a damaged index: remove it to have it made anew")
    return about
