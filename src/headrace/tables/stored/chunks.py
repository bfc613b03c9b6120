"""Chunks: a remote file as pyarrow reads one, with what was fetched last kept in this process.

pyarrow asks for a footer, or for all of a column in a row group, by one call each. What is known to be asked for is
fetched first, many chunks at once (`prepared`); and a chunk that is asked for again soon (a filter reads a column to
count rows, and again to choose them) is not fetched twice.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from os import getpid
from typing import Any

from headrace.sources.bytes import Buffer, ByteFile, FileState, Span, open_bytes
from headrace.sources.raw import RawFile
from headrace.tables.packages import pa
from headrace.tables.stored.cache import Cache

MEMORY = 64 << 20
"""Bytes of chunks that a process keeps."""
OPEN = 256

_chunks: Cache[Buffer] = Cache(MEMORY)
_held: dict[Hashable, Buffer] = {}
"""Chunks of units that are being read."""


class ChunkFile(RawFile):
    """One remote file, at a position of its own."""

    def __init__(self, file: ByteFile) -> None:
        super().__init__(file.path, file.size)
        self.file = file
        self._key = file.path, file.state, getpid()

    @contextmanager
    def prepared(self, spans: Sequence[Span]) -> Iterator[None]:
        """Have all of these chunks here, whatever memory they take; those that are not are fetched together."""
        keys = [(*self._key, *span) for span in spans]
        absent = [(key, span) for key, span in zip(keys, spans, strict=True) if not _chunks.has(key)]
        fetched = self.file.pread_many([span for _, span in absent])
        held: dict[Hashable, Buffer] = {key: bytes(data) for (key, _), data in zip(absent, fetched, strict=True)}
        for key, data in held.items():
            _chunks.get(key, len(data), lambda _, data=data: (data, len(data)))  # type: ignore[misc]
        _held.update(held)
        try:
            yield
        finally:
            for key in held:
                _held.pop(key, None)

    def fetch(self, wanted: int) -> bytes:
        assert self.size is not None
        size = min(wanted, self.size - self.position)
        return bytes(self._chunk((self.position, size))) if size > 0 else b""

    def read_buffer(self, wanted: int | None = None) -> Any:
        """What pyarrow asks for, without a copy."""
        assert self.size is not None
        left = max(0, self.size - self.position)
        size = left if wanted is None or wanted < 0 else min(wanted, left)
        data = self._chunk((self.position, size)) if size else b""
        self.position += size
        return pa.py_buffer(data)

    def _chunk(self, span: Span) -> Buffer:
        key = (*self._key, *span)
        return _held[key] if key in _held else _chunks.get(key, span[1], lambda _: self._fetched(span))

    def _fetched(self, span: Span) -> tuple[Buffer, int]:
        return self.file.pread(*span), span[1]


def chunk_file(path: str, state: FileState | None = None) -> ChunkFile:
    """A remote file that pyarrow may read; its state is asked for once in each process, if it is not known."""
    return ChunkFile(_opened(path, state, getpid()))


@lru_cache(maxsize=OPEN)
def _opened(path: str, state: FileState | None, process: int) -> ByteFile:
    return open_bytes(path, state)
