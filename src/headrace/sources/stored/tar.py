"""Tar shards as WebDataset writes them: neighbouring members with the same name up to the first dot are one sample.

The members of a sample are found by the same rule as in `Pipe.shards`, so both read the same samples of an archive.

The span of a sample reaches from the first header of its first member to the end of its last member, so a sample is one
read. Sparse members are refused: the archive leaves their holes out, so their bytes are not those of the file.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from headrace.ops.archives.webdataset import add_file, key_and_ending
from headrace.sources.bytes import ByteFile, DamagedFile
from headrace.sources.stored.compressed import check_content
from headrace.sources.stored.format import Spans, StoredFormat
from headrace.sources.stored.spans import ForwardReader, in_batches
from headrace.sources.tar import members

CURE = "make or fetch the archive again"
log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class TarShards(StoredFormat):
    name = "tar"
    endings = (".tar",)

    def find(self, file: ByteFile, start: int) -> Iterator[Spans]:
        check_content(file)
        return in_batches(_samples(file, start))

    def decode(self, data: bytes, file: ByteFile, start: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for member in members(_Sample(data, file.path), 0, lambda remark: None):
            found = key_and_ending(member.name)
            if found is not None:
                sample.setdefault("__key__", found[0])
                add_file(sample, found[0], found[1], data[member.data : member.data + member.size])
        return sample


def _samples(file: ByteFile, start: int) -> Iterator[tuple[int, int]]:
    """The first byte and the size of each sample, known when the next sample begins or the archive ends."""
    every = members(_Scanned(file), start, lambda remark: log.warning("%s %s", file.path, remark))
    keyed = ((found[0], member) for member in every if (found := key_and_ending(member.name)) is not None)
    for _, group in groupby(keyed, itemgetter(0)):
        files = [member for _, member in group]
        for member in files:
            if member.holes is not None:
                raise DamagedFile(
                    f"{file.path} has a member at byte {member.start} that is a sparse file, whose holes the archive "
                    "leaves out: pack it again without -S (--sparse), or read it as a stream with Pipe.shards(...)"
                )
        yield files[0].start, files[-1].stop - files[0].start


class _Scanned:
    """An archive that is read from front to back, from one header to the next."""

    cure = CURE

    def __init__(self, file: ByteFile) -> None:
        self.path = file.path
        self.size: int | None = file.size
        self._read = ForwardReader(file).read
        self._stop = file.size

    def read(self, start: int, size: int) -> bytes:
        return self._read(start, min(size, max(0, self._stop - start)))


class _Sample:
    """The bytes of one sample: its members with their headers."""

    cure = CURE

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        self.size: int | None = len(data)
        self._data = data

    def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]
