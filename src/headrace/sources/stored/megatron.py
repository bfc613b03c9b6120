"""Megatron's token files: `name.bin` holds tokens and nothing else, `name.idx` says where sequences stand in it.

    .idx   magic (9 bytes) · version (8) · type of the tokens (1) · number of sequences (8) · of documents + 1 (8)
           lengths (4 each) · offsets in .bin (8 each) · first sequence of each document (8 each)

A sample is one sequence, as an array of tokens. The index is read into memory, 16 bytes a sequence, not mapped: a
mapped file that is written over would change under the reader, and one that is cut off would kill the process. (For
corpora whose index has gigabytes there is `Pipe.tokens`.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from headrace.sources.stored.format import DamagedFile, FileState, OpenFile, Spans, StoredFormat

MAGIC = b"MMIDIDX\x00\x00"
HEAD = 34
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


@dataclass(frozen=True, slots=True)
class Megatron(StoredFormat):
    name = "megatron"
    endings = (".bin",)
    scanned = False

    def open(self, path: str) -> OpenFile:
        return TokensFile(path, index_of(path))

    def sidecar(self, path: str) -> str:
        return index_of(path)

    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        assert isinstance(file, TokensFile)
        yield file.sequences()

    def decode(self, data: bytes, file: OpenFile, start: int) -> Any:
        assert isinstance(file, TokensFile)
        return np.frombuffer(data, file.dtype)


class TokensFile(OpenFile):
    """The tokens of a `.bin`, with the type and the number of sequences that its `index` tells."""

    def __init__(self, path: str, index: str) -> None:
        super().__init__(path)
        self._index = index
        sidecar = FileState.of(index)
        self.state = self.state._replace(sidecar=sidecar)
        self.dtype, self._count = token_type(index, sidecar)

    def check(self, state: FileState) -> None:
        super().check(state)
        if state.sidecar is not None and self.state.sidecar is not None:
            state.sidecar.check(self._index, self.state.sidecar)

    def sequences(self) -> Spans:
        """Where the sequences stand."""
        count = self._count
        with OpenFile(self._index) as index:
            if self.state.sidecar is not None:
                index.check(self.state.sidecar)
            if index.size < HEAD + 12 * count:
                raise DamagedFile(f"{self._index} is cut off: {count} sequences need more than its {index.size} bytes")
            sizes = np.frombuffer(index.read(HEAD, 4 * count), "<i4") * np.int64(np.dtype(self.dtype).itemsize)
            offsets = np.frombuffer(index.read(HEAD + 4 * count, 8 * count), "<i8")
            index.check_again()
        if count and (sizes.min() < 0 or offsets.min() < 0 or bool((offsets > self.size - sizes).any())):
            raise DamagedFile(f"{self._index} says that sequences lie outside the {self.size} bytes of {self.path}")
        return Spans(offsets, sizes)


def index_of(path: str) -> str:
    """The index beside a `.bin`."""
    return path.removesuffix(".bin") + ".idx"


@lru_cache(maxsize=256)
def token_type(index: str, state: FileState) -> tuple[str, int]:
    """The type of the tokens and the number of sequences, out of an index. (`state` is only a key of the cache.)"""
    with OpenFile(index) as file:
        head = file.read(0, min(HEAD, file.size))
    if len(head) < HEAD or head[:9] != MAGIC or head[17] not in TYPES:
        raise DamagedFile(f"{index} is not an index of Megatron's token files")
    return TYPES[head[17]], int.from_bytes(head[18:26], "little")
