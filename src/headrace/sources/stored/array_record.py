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
from headrace.sources.extra import import_extra, require
from headrace.sources.stored.format import MEMORY, DamagedFile, FileState, Ints, OpenFile, Spans, StoredFormat
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

    def open(self, path: str) -> OpenFile:
        return ArrayRecordFile(path)

    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        yield Spans.numbered(file.size)

    def decode(self, data: bytes, file: OpenFile, start: int) -> bytes:
        return data


_groups: Cache[list[bytes]] = Cache(MEMORY)
"""The groups that were used last, of all files."""


class ArrayRecordFile(OpenFile):
    """A file whose places are numbers of records. Each thread of each process has a reader of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._readers: dict[tuple[int, int], Any] = {}
        reader = self._reader()
        self.size = int(reader.num_records())
        found = re.search(r"group_size:(\d+)", reader.writer_options_string() or "")
        self._group = int(found[1]) if found else 1
        self.unit_memory = 0 if self._group == 1 else self._group * self.bytes // max(1, self.size)

    def unit_ends(self, step: int) -> Ints:
        records = max(1, step * self.size // max(1, self.bytes) // self._group) * self._group
        return np.arange(records, self.size + records, records)

    def read(self, start: int, size: int) -> bytes:
        group, place = divmod(start, self._group)
        if self._group == 1:
            data = self._records(group)[0]
        else:
            data = _groups.get((self.path, self.state, group), 0, lambda _: self._sized(group))[place]
        files.read(len(data))
        return data

    def _sized(self, group: int) -> tuple[list[bytes], int]:
        found = self._records(group)
        return found, sum(map(len, found))

    def _records(self, group: int) -> list[bytes]:
        first = group * self._group
        stop = min(first + self._group, self.size)
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
            if FileState.of(self.path) != self.state:  # (opened by its name, which may be another file's by now)
                raise DamagedFile(f"{self.path} has changed since it was opened: make the pipe anew")
            self._readers[key] = reader
        return reader
