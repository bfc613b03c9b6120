"""CSV: rows of comma-separated files, as lists or as dicts.

Decoding is strict unless `errors` says otherwise: a file in another encoding is an error that names the file and the
line, never silently shorter text.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from headrace.ops.files.per_file import PerFile
from headrace.ops.keywords import Given, keywords
from headrace.ops.text.text_lines import check_skip, placed, text_lines


@dataclass(frozen=True, slots=True)
class ParseCsv(PerFile[Any]):
    """Each row of each file as a list, or a tuple; `fmtparams` are those of `csv.reader`."""

    skip_lines: int = 0
    decode: bool = True
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = False
    as_tuple: bool = False
    fmtparams: Given = ()

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)
        object.__setattr__(self, "fmtparams", keywords(self.fmtparams))
        csv.reader((), **dict(self.fmtparams))  # an unknown option is an error now

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        rows: Any = None
        try:
            lines = text_lines(stream, self.skip_lines, self.decode, self.encoding, self.errors)
            rows = csv.reader(lines, **dict(self.fmtparams))
            made = map(tuple, rows) if self.as_tuple else rows
            yield from zip(repeat(path), made, strict=False) if self.return_path else made
        except (UnicodeDecodeError, csv.Error) as error:
            raise _placed(error, path, self.skip_lines + rows.line_num if rows is not None else 0) from None


@dataclass(frozen=True, slots=True)
class ParseCsvAsDict(PerFile[Any]):
    """Each row of each file as a dict by the names in the first row; `fmtparams` are those of `csv.DictReader`."""

    skip_lines: int = 0
    decode: bool = True
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = False
    fmtparams: Given = ()

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)
        object.__setattr__(self, "fmtparams", keywords(self.fmtparams))
        csv.DictReader((), **dict(self.fmtparams))

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        rows: Any = None
        try:
            lines = text_lines(stream, self.skip_lines, self.decode, self.encoding, self.errors)
            rows = csv.DictReader(lines, **dict(self.fmtparams))
            yield from zip(repeat(path), rows, strict=False) if self.return_path else rows
        except (UnicodeDecodeError, csv.Error) as error:
            raise _placed(error, path, self.skip_lines + rows.line_num if rows is not None else 0) from None


def _placed(error: UnicodeDecodeError | csv.Error, path: str, read: int) -> Exception:
    if isinstance(error, UnicodeDecodeError):
        return placed(error, path, read)
    return csv.Error(f"{error} (in {path}, line {read})")
