"""Megatron's token files: `name.bin` holds tokens and nothing else, `name.idx` says where sequences stand in it.

    .idx   magic (9 bytes) · version (8) · type of the tokens (1) · number of sequences (8) · of documents + 1 (8)
           lengths (4 each) · offsets in .bin (8 each) · first sequence of each document (8 each)

A sample is one sequence, as an array of tokens. The index of a large corpus has gigabytes: it is mapped, never loaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from headrace.sources.stored.form import DamagedFile, FileState, Found, OpenFile, Spans, StoredFormat

MAGIC = b"MMIDIDX\x00\x00"
HEAD = 34
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


@dataclass(frozen=True, slots=True)
class Megatron(StoredFormat):
    name = "megatron"
    scanned = False

    def find(self, file: OpenFile, start: int) -> Iterator[Found]:
        index = file.path.removesuffix(".bin") + ".idx"
        dtype, count = token_type(index)
        with OpenFile(index) as stored:
            if stored.size < HEAD + 12 * count:
                raise DamagedFile(f"{index} is cut off: {count} sequences need more than its {stored.size} bytes")
        if not count:
            yield Found(Spans.of([], []), file.size)
            return
        lengths = np.memmap(index, "<i4", "r", HEAD, (count,))
        offsets = np.memmap(index, "<i8", "r", HEAD + 4 * count, (count,))
        sizes = lengths.astype(np.int64) * np.dtype(dtype).itemsize
        if lengths.min() < 0 or offsets.min() < 0 or int((offsets + sizes).max()) > file.size:
            raise DamagedFile(f"{index} says that sequences lie outside the {file.size} bytes of {file.path}")
        yield Found(Spans(offsets, sizes), file.size)

    def decode(self, data: bytes, file: OpenFile, start: int) -> Any:
        return np.frombuffer(data, token_type(file.path.removesuffix(".bin") + ".idx")[0])


def token_type(index: str) -> tuple[str, int]:
    """The type of the tokens, and the number of sequences."""
    return _token_type(index, FileState.of(index))


@lru_cache(maxsize=256)
def _token_type(index: str, state: FileState) -> tuple[str, int]:
    with OpenFile(index) as file:
        head = file.read(0, min(HEAD, file.size))
    if len(head) < HEAD or head[:9] != MAGIC or head[17] not in TYPES:
        raise DamagedFile(f"{index} is not an index of Megatron's token files")
    return TYPES[head[17]], int.from_bytes(head[18:26], "little")
