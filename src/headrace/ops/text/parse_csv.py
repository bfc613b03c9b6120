"""CSV: rows of comma-separated files, as lists or as dicts.

Decoding is strict unless `errors` says otherwise: a file in another encoding is an error that names the file and the
line, never silently shorter text.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from headrace.context import skipper
from headrace.ops.files.per_file import Keywords, PerFile
from headrace.ops.text.text_lines import TextLines, check_skip


@dataclass(frozen=True, slots=True)
class ParseCsv(PerFile[Any]):
    """Each row of each file as a list, or a tuple; `fmtparams` are those of `csv.reader`."""

    skip_lines: int = 0
    decode: bool = True
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = False
    as_tuple: bool = False
    fmtparams: Keywords = ()

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)
        csv.reader((), **dict(self.fmtparams))  # an unknown option is an error now

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        lines = TextLines(stream, path, self.skip_lines, self.decode, self.encoding, self.errors)
        rows = csv.reader(lines, **dict(self.fmtparams))
        made = map(tuple, rows) if self.as_tuple else rows
        yield from _rows(zip(repeat(path), made, strict=False) if self.return_path else made, path, lines)


@dataclass(frozen=True, slots=True)
class ParseCsvAsDict(PerFile[Any]):
    """Each row of each file as a dict by the names in the first row; `fmtparams` are those of `csv.DictReader`."""

    skip_lines: int = 0
    decode: bool = True
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = False
    fmtparams: Keywords = ()

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)
        csv.DictReader((), **dict(self.fmtparams))

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        lines = TextLines(stream, path, self.skip_lines, self.decode, self.encoding, self.errors)
        rows = csv.DictReader(lines, **dict(self.fmtparams))
        try:
            names = rows.fieldnames
        except csv.Error as error:
            raise _placed(error, path, lines) from None
        if lines.left_out and "fieldnames" not in dict(self.fmtparams):
            raise ValueError(f"the names in the first row of {path} cannot be read, so none of its rows has names")
        if names is not None:
            yield from _rows(zip(repeat(path), rows, strict=False) if self.return_path else rows, path, lines)


def _rows(rows: Iterator[Any], path: str, lines: TextLines) -> Iterator[Any]:
    """Rows one by one; one that csv refuses is an error with its place, or left out."""
    skip = skipper()
    while True:
        try:
            yield from rows
            return
        except csv.Error as error:
            skip(_placed(error, path, lines))


def _placed(error: csv.Error, path: str, lines: TextLines) -> csv.Error:
    return csv.Error(f"{error} (in {path}, line {lines.number})")
