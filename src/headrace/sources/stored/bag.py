"""Bags: records back to back, then the end of each. A sample is the bytes of a record."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.sources.stored.format import DamagedFile, OpenFile, Spans, StoredFormat
from headrace.sources.stored.spans import spans_between


@dataclass(frozen=True, slots=True)
class Bag(StoredFormat):
    name = "bag"
    endings = (".bag",)
    scanned = packable = False

    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        """The last number is the end of the last record, and so where the ends begin."""
        if not file.size:
            yield spans_between(np.zeros(1, np.int64), file)
            return
        begin = int.from_bytes(file.read(max(0, file.size - 8), min(8, file.size)), "little")
        if not 0 <= begin <= file.size - 8 or (file.size - begin) % 8:
            raise DamagedFile(
                f"{file.path} is not a bag, or cut off: its last 8 bytes do not say where its records end"
            )
        ends = np.frombuffer(file.read(begin, file.size - begin), "<u8").astype(np.int64)
        yield spans_between(np.concatenate([np.zeros(1, np.int64), ends]), file)

    def decode(self, data: bytes, file: OpenFile, start: int) -> bytes:
        return data
