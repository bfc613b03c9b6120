"""The contract of a stored format: where the samples of a file stand, and what their bytes mean.

A sample is a span of bytes of one file. A format finds the spans, in a table that the file has or by a scan (`find`),
and turns the bytes of one span into a sample (`decode`). Everything else - many files, positions, reading, keeping what
a scan has found - is the same for all formats and is in `source` and `index`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.sources.bytes import ByteFile, FileState, open_bytes

Ints = NDArray[np.int64]
MEMORY = 256 << 20
"""Bytes of groups of records, read as a whole, that a process keeps in memory."""


class Spans(NamedTuple):
    """The first byte and the number of bytes of each sample of a file."""

    starts: Ints
    sizes: Ints

    @staticmethod
    def of(starts: Any, sizes: Any) -> "Spans":
        return Spans(np.asarray(starts, np.int64), np.asarray(sizes, np.int64))

    @staticmethod
    def numbered(count: int) -> "Spans":
        """For a file whose places are numbers of samples, not bytes."""
        return Spans(np.arange(count), np.ones(count, np.int64))


class StoredFormat(ABC):
    """One kind of file. Frozen and picklable; its fields are part of a pipe's fingerprint."""

    __slots__ = ()
    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]] = ()
    """What names of such files end with, in small letters."""
    scanned: ClassVar[bool] = True
    """The spans are found by reading through the file, so they are kept in an index beside it."""

    @classmethod
    def of(cls, files: tuple[str, ...], trust: bool) -> "StoredFormat":
        """The format of these files; with `trust`, the user allows pickles in them to be loaded."""
        return cls()

    def unit_ends(self, file: ByteFile, step: int) -> Ints:
        """The places at which units of about `step` bytes end. Places are bytes, or numbers of records."""
        return np.arange(step, file.size + step, step)

    def unit_memory(self, file: ByteFile) -> int:
        """Bytes that stay in memory while a unit of the file is read."""
        return 0

    def open(self, path: str, state: FileState | None = None) -> ByteFile:
        """A file of this format, to be read at any place."""
        return open_bytes(path, state)

    def sidecar(self, path: str) -> str | None:
        """The file beside this one that says where its samples stand, if any: it must not change either."""
        return None

    @abstractmethod
    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        """The spans of a file: all at once from a table, or thousands at a time by a scan that begins at byte `start`.
        (A scan that was interrupted goes on behind the last span that was saved.)"""

    def place_of(self, spans: Spans, row: int) -> str:
        """Where sample number `row` of a file stands, for messages."""
        return f"at byte {spans.starts[row]}"

    @abstractmethod
    def decode(self, data: bytes, file: ByteFile, start: int) -> Any:
        """The sample in these bytes, which begin at byte `start` of the file."""
