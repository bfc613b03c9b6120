"""ArrayRecord files, through the official reader: a sample is the bytes of a record.

The reader knows records by number, not by byte, so the place of a sample is its number. A file that was written in
groups is unpacked a group at a time; with `group_size:1`, as its makers advise, a record is read by itself.
"""

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.observe.meter import files
from headrace.sources.bytes import ByteFile, DamagedFile, FileState, Local
from headrace.sources.extra import import_extra, require
from headrace.sources.stored.format import MEMORY, Ints, Spans, StoredFormat
from headrace.tables.packages import check_threads
from headrace.tables.stored.cache import Cache

OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""No reading ahead, because samples are not read in order, and no threads, because a record is small: reading it costs
5 us like this, 170 us through the reader's threads."""
DAMAGE = (RuntimeError, ValueError, IndexError)
"""What the reader raises for a damaged file."""


@dataclass(frozen=True, slots=True)
class ArrayRecords(StoredFormat):
    name = "arrayrecord"
    endings = (".array_record", ".arrayrecord")
    scanned = False

    def __post_init__(self) -> None:
        require("arrayrecord", "array_record")

    def open(self, path: str, state: FileState | None = None) -> ByteFile:
        return ArrayRecordFile(path, state)

    def unit_ends(self, file: ByteFile, step: int) -> Ints:
        assert isinstance(file, ArrayRecordFile)
        records = max(1, step * file.size // max(1, file.state.size) // file.group) * file.group
        return np.arange(records, file.size + records, records)

    def unit_memory(self, file: ByteFile) -> int:
        assert isinstance(file, ArrayRecordFile)
        return 0 if file.group == 1 else file.group * file.state.size // max(1, file.size)

    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        yield Spans.numbered(file.size)

    def decode(self, data: bytes, file: ByteFile, start: int) -> bytes:
        return data


_groups: Cache[list[bytes]] = Cache(MEMORY)
"""The groups that were used last, of all files."""


class ArrayRecordFile(Local):
    """A file whose places are numbers of records. Each thread of each process has a reader of its own."""

    def __init__(self, path: str, state: FileState | None = None) -> None:
        super().__init__(path, state)
        self._readers: dict[tuple[int, int], Any] = {}
        reader = self._reader()
        self._count = int(reader.num_records())
        found = re.search(r"group_size:(\d+)", reader.writer_options_string() or "")
        self.group = int(found[1]) if found else 1
        """Records that are unpacked together."""

    @property
    def size(self) -> int:
        """The number of records: places are counted in them."""
        return self._count

    def pread(self, start: int, size: int) -> bytes:
        group, place = divmod(start, self.group)
        if self.group == 1:
            data = self._records(group)[0]
        else:
            data = _groups.get((self.path, self.state, group), 0, lambda _: self._sized(group))[place]
        files.read(len(data))
        return data

    def _sized(self, group: int) -> tuple[list[bytes], int]:
        found = self._records(group)
        return found, sum(map(len, found))

    def _records(self, group: int) -> list[bytes]:
        first = group * self.group
        stop = min(first + self.group, self.size)
        reader = self._reader()
        try:
            found: list[bytes] = reader.read(first, stop)
        except DAMAGE as error:
            raise DamagedFile(f"{self.path} is damaged: records {first} to {stop} cannot be read ({error})") from None
        if len(found) != stop - first:
            raise DamagedFile(f"{self.path} is damaged: of records {first} to {stop} only {len(found)} are there")
        return found

    def close(self) -> None:
        super().close()
        self._readers = {}

    def _reader(self) -> Any:
        key = os.getpid(), threading.get_ident()
        reader = self._readers.get(key)
        if reader is None:
            check_threads("array_record")  # (a forked process ends by a signal, or waits forever, in the constructor)
            module = import_extra("arrayrecord", "array_record.python.array_record_module")
            try:
                reader = module.ArrayRecordReader(self.path, OPTIONS)
                if not reader.ok() or (reader.writer_options_string() is None and not reader.num_records()):
                    raise ValueError("its footer cannot be read")  # (the reader itself says: no records)
            except DAMAGE as error:
                raise DamagedFile(f"{self.path} is not an ArrayRecord file, or a damaged one ({error})") from None
            # (It was opened by its name, which may be another file's by now.)
            if FileState.of(self.path) != FileState.of(self.fileno()):
                raise DamagedFile(f"{self.path} has changed since it was opened: make the pipe anew")
            self._readers[key] = reader
        return reader
