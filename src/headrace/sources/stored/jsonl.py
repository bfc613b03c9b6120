"""JSON lines: one document a line. Blank lines are no samples; a last line needs no newline."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.sources.stored.form import DamagedFile, Found, OpenFile, Spans, StoredFormat

PIECE = 16 << 20
NEWLINE = 0x0A
BLANKS = np.frombuffer(b" \t\r\v\f", np.uint8)
MARK = b"\xef\xbb\xbf"
"""What some programs write at the start of text in UTF-8."""
COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


@dataclass(frozen=True, slots=True)
class JsonLines(StoredFormat):
    name = "jsonl"

    def find(self, file: OpenFile, start: int) -> Iterator[Found]:
        head = file.read(0, min(8, file.size))
        for magic, kind in COMPRESSED.items():
            if head.startswith(magic):
                raise DamagedFile(
                    f"{file.path} is compressed ({kind}), so no line of it can be read by itself: decompress it, or "
                    "read it as a stream with Pipe.files(...).open_files().decompress().readlines()"
                )
        line = at = start or (len(MARK) if head.startswith(MARK) else 0)
        while at < file.size:
            data = file.read(at, min(PIECE, file.size - at))
            letters = np.frombuffer(data, np.uint8)
            ends = np.flatnonzero(letters == NEWLINE) + at
            if at + len(data) == file.size and data[-1] != NEWLINE:
                ends = np.append(ends, file.size)
            if len(ends):
                starts = np.concatenate([[line], ends[:-1] + 1])
                # Blank lines are looked for only among those that begin with a blank, or in an earlier piece.
                first = letters[np.clip(starts - at, 0, len(data) - 1)]
                kept = ends > starts
                for row in np.flatnonzero(kept & (np.isin(first, BLANKS) | (starts < at))).tolist():
                    kept[row] = bool(file.read(int(starts[row]), int(ends[row] - starts[row])).strip())
                line = int(ends[-1]) + 1
                yield Found(Spans.of(starts[kept], (ends - starts)[kept]), min(line, file.size))
            at += len(data)

    def decode(self, data: bytes, file: OpenFile, start: int) -> Any:
        return json.loads(data)
