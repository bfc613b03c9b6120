"""JSON lines: one document a line, in UTF-8. Blank lines are no samples; a last line needs no end.

Lines are those of Python's text files: they end with a line feed, a carriage return or both, and nothing else. So are
those of `Pipe.jsonl` (`ops/text/parse_json.py`), which reads the same documents as a stream.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.sources.bytes import ByteFile
from headrace.sources.stored.compressed import check_content
from headrace.sources.stored.format import Ints, Spans, StoredFormat

PIECE = 1 << 20
"""Bytes that are scanned together: few enough to stay in the processor's cache."""
NEWLINE, RETURN = 0x0A, 0x0D
BLANK, ASCII = 0x20, 0x7F
"""A blank line begins with a byte up to BLANK or above ASCII (blanks of other scripts); a document with another."""
MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs write at the start of text in UTF-8."""


@dataclass(frozen=True, slots=True)
class JsonLines(StoredFormat):
    name = "jsonl"
    endings = (".jsonl", ".ndjson")

    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        check_content(file)
        marked = file.pread(0, min(len(MARK), file.size)) == MARK
        line = at = start or (len(MARK) if marked else 0)
        piece, marks = bytearray(PIECE), np.empty(PIECE, bool)
        while at < file.size:
            data = memoryview(piece)[: file.size - at]
            file.read_into(at, data)
            content = np.frombuffer(data, np.uint8)
            ends = _newlines(content, marks)
            if piece.find(RETURN, 0, len(data)) >= 0:
                # (The line feed that belongs to a carriage return may be the first byte of the next piece.)
                parted = data[-1] == RETURN and at + len(data) < file.size and file.pread(at + len(data), 1) == b"\n"
                lone = _lone_returns(content[:-1] if parted else content)
                ends = np.union1d(ends, lone) if len(lone) else ends
            if at + len(data) == file.size and data[-1] not in (NEWLINE, RETURN):
                ends = np.append(ends, len(data))
            if len(ends):
                lines = _lines(file, content, ends, at, line)
                line = at + int(ends[-1]) + 1
                yield lines
            at += len(data)

    def place_of(self, spans: Spans, row: int) -> str:
        byte = StoredFormat.place_of(self, spans, row)
        newlines = int(spans.starts[row]) - int(spans.starts[0]) - int(spans.sizes[:row].sum())
        blank = newlines != row or int(spans.starts[0]) not in (0, len(MARK))
        return byte if blank else f"in line {row + 1}, {byte}"  # (editors count blank lines, and an index does not)

    def decode(self, data: bytes, file: ByteFile, start: int) -> Any:
        return json.loads(str(data, "utf-8"))  # (of bytes, json would guess the encoding)


def _newlines(content: NDArray[np.uint8], marks: NDArray[np.bool_]) -> Ints:
    """The places of newlines, searched for in words of eight bytes, which seldom hold more than one.

    `marks` is memory for results in between: new memory for each piece would cost as much as the search.
    """
    found = np.equal(content, NEWLINE, out=marks[: len(content)])
    whole = len(found) & ~7
    words = found[:whole].view(np.uint64)
    ends = np.flatnonzero(words != 0)
    bits = words[ends]
    if (bits & (bits - np.uint64(1))).any():
        return np.flatnonzero(found)
    # One bit is set, at 8 times the place of the newline in its word: the exponent of the word as a float.
    ends *= 8
    ends += (bits.astype(np.float64).view(np.int64) >> 55) - (1023 >> 3)
    return np.append(ends, whole + np.flatnonzero(found[whole:])) if whole < len(found) else ends


def _lone_returns(content: NDArray[np.uint8]) -> Ints:
    """The places of carriage returns that end a line by themselves."""
    found = content == RETURN
    found[:-1] &= content[1:] != NEWLINE
    return np.flatnonzero(found)


def _lines(file: ByteFile, content: NDArray[np.uint8], ends: Ints, at: int, line: int) -> Spans:
    """The lines that end in a piece that begins at byte `at`; the first of them begins at byte `line`."""
    starts = np.empty_like(ends)
    starts[0] = line - at  # below 0 where it began in an earlier piece
    np.add(ends[:-1], 1, out=starts[1:])
    sizes = ends - starts
    # Only lines that begin as a blank line does, or in an earlier piece, can be blank lines.
    begun_before = line < at
    if begun_before:
        starts[0] = 0
    first = content[starts]
    doubtful = np.flatnonzero((first <= BLANK) | (first > ASCII))
    starts[0] = line - at
    starts += at
    if begun_before and (not len(doubtful) or doubtful[0] != 0):
        doubtful = np.append(0, doubtful)
    candidates = zip(doubtful.tolist(), starts[doubtful].tolist(), sizes[doubtful].tolist(), strict=True)
    blank = [row for row, start, size in candidates if not str(file.pread(start, size), "utf-8", "replace").strip()]
    return Spans(np.delete(starts, blank), np.delete(sizes, blank)) if blank else Spans(starts, sizes)
