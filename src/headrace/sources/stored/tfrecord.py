"""TFRecord files: the records of each, by position; examples as dicts of arrays, or bare bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.sources.bytes import ByteFile, DamagedFile
from headrace.sources.crc32c import crc32c, stored_crc
from headrace.sources.stored.format import Spans, StoredFormat
from headrace.sources.stored.spans import ForwardReader, in_batches
from headrace.sources.tfrecord import features

HEAD, TAIL = 12, 4
"""Bytes before the data (its length and the check sum of that) and after it (its check sum)."""


@dataclass(frozen=True, slots=True)
class TfRecords(StoredFormat):
    raw: bool = False
    """Samples are the bytes of the records, not the features in them."""
    name = "tfrecord"
    endings = (".tfrecord", ".tfrecords")

    def __post_init__(self) -> None:
        crc32c()  # (what is missing is said when the pipe is made)

    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        return in_batches(_records(file, start))

    def decode(self, data: bytes, file: ByteFile, start: int) -> Any:
        record, crc = data[:-TAIL], data[-TAIL:]
        if stored_crc(record) != crc:
            raise DamagedFile(f"{file.path} is damaged: the check sum of the record at byte {start} differs")
        return record if self.raw else features(record)


def _records(file: ByteFile, start: int) -> Iterator[tuple[int, int]]:
    """Where the data of each record begins, and its size, its check sum included."""
    read, at = ForwardReader(file).read, start
    while at < file.size:
        head = read(at, min(HEAD, file.size - at))
        if len(head) < HEAD or stored_crc(head[:8]) != head[8:]:
            raise DamagedFile(f"{file.path} is damaged or compressed: no record begins at byte {at}")
        size = int.from_bytes(head[:8], "little")
        stop = at + HEAD + size + TAIL
        if stop > file.size:
            raise DamagedFile(f"{file.path} is cut off: the record at byte {at} ends {stop - file.size} bytes later")
        yield at + HEAD, size + TAIL
        at = stop
