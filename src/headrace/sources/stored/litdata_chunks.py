"""The forms of LitData's chunks: plain, in frames that are compressed each by itself, and rows as an Arrow table.

plain    | number of samples | offsets | samples |; where samples are compressed one by one, each is a zstd frame
frames   | "LDFZ01" 0 0 | version, flags (2 bytes each), samples, samples a frame, frames (4 each) | offsets |
         | first sample, samples (4), start (8), size, size unpacked (4) of each frame | frames |
         Offsets count bytes of all frames unpacked, end to end.
rows     | number of samples | offsets, all the same | Arrow file | its size (4) | "LDARW01" 0 |
"""

import struct
from threading import Lock
from typing import Any

import numpy as np

from headrace.sources.extra import need
from headrace.sources.slice import FileSlice
from headrace.sources.stored.finding import counted_table
from headrace.sources.stored.form import DamagedFile, Ints, OpenFile, Spans
from headrace.sources.stored.packed import PiecesFile, UnpackedFile

FRAMES, ROWS = b"LDFZ01\0\0", b"LDARW01\0"
TAIL = 12
"""Bytes behind an Arrow table."""
HEAD = struct.Struct("<8sHHIII")
FRAME = np.dtype([("first", "<u4"), ("samples", "<u4"), ("start", "<u8"), ("size", "<u4"), ("unpacked", "<u4")])


def open_chunk(path: str) -> OpenFile:
    """A chunk, whichever form it has."""
    file = OpenFile(path)
    if file.size >= HEAD.size and file.read(0, len(FRAMES)) == FRAMES:
        with file:
            return _framed(file)
    if file.size > TAIL and file.read(file.size - len(ROWS), len(ROWS)) == ROWS:
        with file:
            return _rows(file)
    return file


class FramedChunk(UnpackedFile):
    """Read like what was packed into its frames."""

    def __init__(self, path: str, frames: Spans, sizes: list[int], offsets: Ints) -> None:
        super().__init__(path, frames, sizes)
        self.offsets = offsets


def _framed(file: OpenFile) -> FramedChunk:
    _, version, _, samples, _, count = HEAD.unpack(file.read(0, HEAD.size))
    if version != 1:
        raise DamagedFile(f"{file.path} has frames of version {version}: 1 can be read")
    table = HEAD.size + 4 * (samples + 1)
    if table + FRAME.itemsize * count > file.size:
        raise DamagedFile(f"{file.path} is damaged or cut off: its table of {samples} samples does not fit into it")
    offsets = np.frombuffer(file.read(HEAD.size, 4 * (samples + 1)), "<u4").astype(np.int64)
    frames = np.frombuffer(file.read(table, FRAME.itemsize * count), FRAME)
    starts, sizes = frames["start"].astype(np.int64), frames["size"].astype(np.int64)
    if bool((starts < 0).any()) or bool((starts + sizes > file.size).any()):
        raise DamagedFile(f"{file.path} is damaged: its table says that frames lie outside its {file.size} bytes")
    return FramedChunk(file.path, Spans(starts, sizes), frames["unpacked"].astype(np.int64).tolist(), offsets)


def _rows(file: OpenFile) -> "RowsChunk":
    size = int.from_bytes(file.read(file.size - TAIL, 4), "little")
    start = file.size - TAIL - size
    if start < 0:
        raise DamagedFile(f"{file.path} is damaged: its table of {size} bytes does not fit into it")
    return RowsChunk(file.path, len(counted_table(file)) - 1, start, size)


class RowsChunk(PiecesFile):
    """Rows of a table, in batches of one number of rows. Places are numbers of rows, not bytes."""

    def __init__(self, path: str, rows: int, start: int, size: int) -> None:
        super().__init__(path)
        self.bytes, self.size = size, rows
        self._lock = Lock()
        arrow = need("arrow", "pyarrow")
        self._damage = arrow.ArrowException, OSError
        try:
            # (A file of its own: Arrow holds on to it, so it has to know nobody who holds Arrow's.)
            self._table = arrow.ipc.open_file(arrow.PythonFile(FileSlice(path, start, size), mode="r"))
            self._each = self.piece(0).num_rows if rows else 1
        except self._damage as error:
            raise DamagedFile(f"{path} is damaged: its table cannot be read ({error})") from None
        if -(-rows // max(1, self._each)) != self._table.num_record_batches and rows:
            raise DamagedFile(f"{path} is damaged: its table has other than {rows} rows")
        self.held = self.piece(0).nbytes if rows else 0

    def cuts(self, step: int) -> Ints:
        """Units are batches: each is unpacked whole."""
        return np.arange(self._each, self.size + self._each, self._each)

    def read(self, start: int, size: int) -> bytes:
        return b""  # (a row is asked for by its number)

    def row(self, number: int) -> dict[str, Any]:
        which, at = divmod(number, self._each)
        try:
            batch = self.piece(which)
        except self._damage as error:
            raise DamagedFile(f"{self.path} is damaged in batch {which} of its table ({error})") from None
        if batch.num_rows != min(self._each, self.size - which * self._each):
            raise DamagedFile(f"{self.path} is damaged: batch {which} of its table has {batch.num_rows} rows")
        found: dict[str, Any] = batch.slice(at, 1).to_pylist()[0]
        return found

    def load(self, number: int) -> tuple[Any, int]:
        with self._lock:
            found = self._table.get_batch(number)
        self.check_again()  # (it is read after the file was looked at, and kept)
        found.validate(full=True)  # (damaged offsets would point anywhere into memory)
        return found, found.nbytes
