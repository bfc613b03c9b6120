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

from headrace.sources.bytes import ByteFile, DamagedFile, FileState, open_bytes
from headrace.sources.stored.format import Spans, StoredFormat

MAGIC = b"MMIDIDX\x00\x00"
HEAD = 34
TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


@dataclass(frozen=True, slots=True)
class Megatron(StoredFormat):
    name = "megatron"
    endings = (".bin",)
    scanned = False

    def sidecar(self, path: str) -> str:
        return index_of(path)

    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        yield _sequences(file)

    def decode(self, data: bytes, file: ByteFile, start: int) -> Any:
        return np.frombuffer(data, _type(file)[0])


def _type(file: ByteFile) -> tuple[str, int]:
    """The type of the tokens in a `.bin`, and the number of its sequences."""
    index = index_of(file.path)
    return token_type(index, file.state.sidecar or FileState.of(index))


def _sequences(file: ByteFile) -> Spans:
    """Where the sequences of a `.bin` stand, by its index."""
    path, (dtype, count) = index_of(file.path), _type(file)
    with open_bytes(path, file.state.sidecar) as index:
        if index.size < HEAD + 12 * count:
            raise DamagedFile(f"{path} is cut off: {count} sequences need more than its {index.size} bytes")
        sizes = np.frombuffer(index.pread(HEAD, 4 * count), "<i4") * np.int64(np.dtype(dtype).itemsize)
        offsets = np.frombuffer(index.pread(HEAD + 4 * count, 8 * count), "<i8")
        index.check_again()
    if count and (sizes.min() < 0 or offsets.min() < 0 or bool((offsets > file.size - sizes).any())):
        raise DamagedFile(f"{path} says that sequences lie outside the {file.size} bytes of {file.path}")
    return Spans(offsets, sizes)


def index_of(path: str) -> str:
    """The index beside a `.bin`."""
    return path.removesuffix(".bin") + ".idx"


@lru_cache(maxsize=256)
def token_type(index: str, state: FileState) -> tuple[str, int]:
    """The type of the tokens and the number of sequences, out of an index that was like this."""
    with open_bytes(index, state) as file:
        head = bytes(file.pread(0, min(HEAD, file.size)))
    if len(head) < HEAD or head[:9] != MAGIC or head[17] not in TYPES:
        raise DamagedFile(f"{index} is not an index of Megatron's token files")
    return TYPES[head[17]], int.from_bytes(head[18:26], "little")
