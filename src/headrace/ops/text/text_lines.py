"""Text lines of a stream that may hold text or bytes, with decode errors that name the file and the line."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import methodcaller
from typing import Any

from headrace.context import skipper
from headrace.errors import BadOption
from headrace.ops.files.per_file import PerFile
from headrace.sources.stream import StreamWrapper

_RETURN = re.compile(r"(?<=\r)(?!\n|$)")
"""Behind a carriage return that ends a line by itself."""
_RETURN_BYTE = re.compile(rb"(?<=\r)(?!\n|$)")


def check_skip(skip_lines: int) -> None:
    if not isinstance(skip_lines, int) or skip_lines < 0:
        raise BadOption("'skip_lines' is required to be a positive integer.")


class TextLines(Iterator[Any]):
    """The lines of a stream after the first `skip_lines`; bytes become text when `decode`.

    A line that cannot be decoded is an error with its place, or, with `on_error="skip"`, left out by itself. A text
    file is decoded in blocks, and cannot be read on behind a bad byte. Text ends its lines with a line feed, a carriage
    return or both, however it was opened; bytes with a line feed.
    """

    def __init__(
        self, stream: Any, path: str, skip_lines: int = 0, decode: bool = True, encoding: str = "utf-8",
        errors: str = "strict",
    ) -> None:  # fmt: skip
        self._path = path
        self._skip = skipper()
        self.number = skip_lines
        """The number of the line read last, counted from 1."""
        self.left_out = False
        """Whether lines were left out."""
        self._pieces: list[str] = []
        """What is left of a line that was cut at carriage returns, last piece first."""
        self._decode = methodcaller("decode", encoding, errors)
        self._lines: Iterator[Any] = iter(())
        try:
            self._lines = _lines(stream, skip_lines, decode, encoding, errors)
        except UnicodeDecodeError as error:
            self._skip(placed(error, path, 0))
            self.left_out = True
        self._by_line = isinstance(self._lines, map)
        """Each line is decoded by itself."""

    def __next__(self) -> Any:
        if self._pieces:
            self.number += 1
            return self._pieces.pop()
        while True:
            try:
                line = next(self._lines)
            except UnicodeDecodeError as error:
                if self._by_line and len(pieces := _RETURN_BYTE.split(error.object)) > 1:
                    self._lines = chain(map(self._decode, pieces), self._lines)
                    continue
                self._skip(placed(error, self._path, self.number))
                self.left_out = True
                if not self._by_line:
                    raise StopIteration from None
                self.number += 1
                continue
            self.number += 1
            if type(line) is str and line.find("\r", 0, -2 if line.endswith("\r\n") else -1) >= 0:
                *self._pieces, line = reversed(_RETURN.split(line))
            return line


def _lines(stream: Any, skip: int, decode: bool, encoding: str, errors: str) -> Iterator[Any]:
    inner = stream.file_obj if isinstance(stream, StreamWrapper) else stream
    if decode and not isinstance(inner, io.TextIOBase) and not "\n\n".encode(encoding).endswith(b"\n\n"):
        # An encoding of wide characters: its lines cannot be cut before it is decoded.
        inner = io.TextIOWrapper(_Borrowed(inner), encoding, errors, newline="")
    lines = _after(iter(inner), skip, decode)
    if not decode:
        return lines
    first = next(lines, None)
    if first is None:
        return iter(())
    lines = chain((first,), lines)
    return lines if isinstance(first, str) else map(methodcaller("decode", encoding, errors), lines)


def _after(lines: Iterator[Any], skip: int, decode: bool) -> Iterator[Any]:
    """The lines behind the first `skip`; those in bytes that are not decoded end with a line feed only."""
    while skip and (line := next(lines, None)) is not None:
        is_text = isinstance(line, str)
        pieces = (_RETURN if is_text else _RETURN_BYTE).split(line) if is_text or decode else [line]
        if len(pieces) > skip:
            return chain((line[:0].join(pieces[skip:]),), lines)
        skip -= len(pieces)
    return lines


def placed(error: UnicodeDecodeError, path: str, read: int) -> UnicodeDecodeError:
    """The decode error with file and line in its text; `read` lines had been read before it."""
    # A text file is decoded in blocks: the line is further on by the lines of the block before the bad byte.
    line = read + 1 + error.object[: error.start].count(b"\n")
    reason = f"{error.reason} (in {path}, line {line}; give encoding=, or errors='replace' or 'ignore')"
    return UnicodeDecodeError(error.encoding, error.object, error.start, error.end, reason)


class _Borrowed(io.BufferedIOBase):
    """The bytes of a stream that its owner closes, not this reader."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._inner.read(-1 if size is None else size)  # type: ignore[no-any-return]

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)


@dataclass(frozen=True, slots=True)
class ReadLines(PerFile[Any]):
    """Each line of each file, with its path; bytes stay bytes unless `decode`."""

    skip_lines: int = 0
    strip_newline: bool = True
    decode: bool = False
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = True
    verb = "readlines"

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        strip, return_path = self.strip_newline, self.return_path
        for line in TextLines(stream, path, self.skip_lines, self.decode, self.encoding, self.errors):
            if strip:
                line = line.rstrip("\r\n" if isinstance(line, str) else b"\r\n")
            yield (path, line) if return_path else line
