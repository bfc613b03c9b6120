"""Finding spans: what formats with a table of offsets, and formats that scan their files, have in common."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from headrace.sources.bytes import ByteFile, DamagedFile
from headrace.sources.stored.format import Ints, Spans

PIECE = 1 << 18
BATCH = 1 << 14
"""Spans in a batch."""


class ForwardReader:
    """Small reads that go forward through a file. Most cost no system call: a read inside the piece that was read last
    is a slice of it, any other reads the piece that begins there."""

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self._start = 0
        self._data = b""

    def read(self, start: int, size: int) -> bytes:
        inside = start - self._start
        if inside < 0 or inside + size > len(self._data):
            wanted = min(max(size, PIECE), max(size, self._file.size - start))
            self._data, self._start, inside = bytes(self._file.pread(start, wanted)), start, 0
        return self._data[inside : inside + size]


def in_batches(found: Iterable[tuple[int, int]]) -> Iterator[Spans]:
    """Pairs of (first byte, size), many at a time."""
    left = iter(found)
    while some := list(islice(left, BATCH)):
        yield Spans.of(*zip(*some, strict=True))


def spans_between(offsets: Ints, file: ByteFile) -> Spans:
    """Samples that stand one behind the other: each reaches from its offset in the file's table to the next one."""
    sizes = np.diff(offsets)
    if len(offsets) and (offsets[0] < 0 or offsets[-1] > file.size or bool((sizes < 0).any())):
        raise DamagedFile(f"{file.path} is damaged: its table says that samples lie outside its {file.size} bytes")
    return Spans.of(offsets[:-1], sizes)


def counted_table(file: ByteFile) -> Ints:
    """The offsets at the start of a file: the number of samples n, then n + 1 offsets, 4 bytes each."""
    if file.size < 4:
        raise DamagedFile(f"{file.path} has {file.size} bytes: too few for a table of samples")
    count = int(np.frombuffer(file.pread(0, 4), "<u4")[0])
    if 4 * (count + 2) > file.size:
        raise DamagedFile(f"{file.path} is damaged or cut off: its table of {count} samples does not fit into it")
    return np.frombuffer(file.pread(4, 4 * (count + 1)), "<u4").astype(np.int64)
