"""Stored files: the samples of many files of one format, any of them by its position.

Positions count through the files in the order given. A sample is one read of just its bytes, so in any order, and on
any number of ranks, every byte is read once an epoch. Neighbours are cheaper to read than scattered samples, though,
and a file is best opened by one rank: files are cut into units of some megabytes, which a shuffled order of large data
keeps together (`plan.parts`).
"""

import os
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BadOption
from headrace.observe.meter import planned
from headrace.op import Here, Indexed, Source
from headrace.plan.units import Units, choose_arrangement
from headrace.sources.stored.format import MEMORY, FileState, Ints, OpenFile, Spans, StoredFormat
from headrace.sources.stored.index import spans_in

UNIT = 4 << 20
"""Bytes of a unit, about. The order of samples depends on it."""
OPEN = 128
"""Files that a process keeps open."""


@dataclass(frozen=True, eq=False)
class StoredFiles(Source[Any]):
    """Samples by position, over `paths`. `folder` is where indices are kept, if not beside the files."""

    paths: tuple[str, ...]
    format: StoredFormat
    folder: str | None = None
    states: tuple[FileState, ...] = ()
    """The state of each file when the pipe was made: a file that changes while it is read is an error."""
    verb = "stored"

    def __post_init__(self) -> None:
        if not self.paths:
            raise BadOption(f"no {self.format.name} files: give at least one path")
        if not self.states:
            states = (FileState.of(path, self.format.sidecar(path)) for path in self.paths)
            object.__setattr__(self, "states", tuple(states))

    def size(self) -> int:
        return self._catalog.ends[-1]

    def get(self, position: int) -> Any:
        catalog = self._catalog
        number = bisect_right(catalog.ends, position)
        spans = catalog.spans[number]
        row = position - (catalog.ends[number - 1] if number else 0)
        file = _open_file(self.paths[number], self.states[number], self.format)
        start, size = int(spans.starts[row]), int(spans.sizes[row])
        try:
            data = file.read(start, size)
            file.check_again()
            return self.format.decode(data, file, start)
        except Exception as error:
            where = self.format.place_of(spans, row)
            error.add_note(f"(sample {row}, counted from 0, of {self.paths[number]}, {where})")
            raise

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        assert found is not None
        self._check_sidecars()
        found.units = self.units()
        return found

    def _check_sidecars(self) -> None:
        """Raise if a sidecar file, by which samples were found, has changed since."""
        for path, state in zip(self.paths, self.states, strict=True):
            if state.sidecar is None:
                return
            sidecar = self.format.sidecar(path)
            assert sidecar is not None
            state.sidecar.check(sidecar, FileState.of(sidecar))

    def units(self) -> Units:
        """Stretches of about UNIT bytes; none of them crosses files."""
        catalog = self._catalog
        hold = MEMORY // catalog.largest if catalog.largest else len(catalog.unit_ends)
        return Units(catalog.unit_ends, hold, catalog.total, catalog.largest, "stretches of files")

    def settle(self) -> None:
        self.size()

    def describe(self) -> str:
        return f"{self.format.name}({len(self.paths)} files, {self.size()} samples)"

    def identity(self) -> tuple[Any, ...]:
        names = map(os.path.basename, self.paths)
        sizes = (state.size for state in self.states)
        counts = np.diff(self._catalog.ends, prepend=0).tolist()
        text = repr((self.format, list(zip(names, sizes, counts, strict=True))))
        digest = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        return ("stored", self.format.name, digest, choose_arrangement(self.units()))

    @cached_property
    def _catalog(self) -> "_Catalog":
        # (Not asked of the cache at every sample: it compares all paths.)
        return _catalog(self.paths, self.states, self.format, self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredFiles, (self.paths, self.format, self.folder, self.states)


class _Catalog(NamedTuple):
    """Where the samples of all files stand."""

    spans: tuple[Spans, ...]
    ends: list[int]
    """The first position after each file."""
    unit_ends: Ints
    """The first position after each unit."""
    total: int
    """Bytes of all files."""
    largest: int
    """The most bytes that stay in memory while a unit is read."""


@lru_cache(maxsize=16)
def _catalog(
    paths: tuple[str, ...], states: tuple[FileState, ...], format: StoredFormat, folder: str | None
) -> _Catalog:
    spans: list[Spans] = []
    unit_ends = [np.zeros(0, np.int64)]
    first = total = largest = 0
    for path, state in zip(paths, states, strict=True):
        with format.open(path) as file:
            file.check(state)
            found = spans_in(file, format, folder)
            # (Empty samples may begin where the file ends, behind the last unit: they belong to a file all the same.)
            inside = np.append(np.searchsorted(found.starts, file.unit_ends(UNIT)), len(found.starts))
            total, largest = total + file.bytes, max(largest, file.unit_memory)
        unit_ends.append(first + np.unique(inside[inside > 0]))
        spans.append(found)
        first += len(found.starts)
    planned.note()
    ends = list(accumulate(len(found.starts) for found in spans))
    return _Catalog(tuple(spans), ends, np.concatenate(unit_ends), total, largest)


@lru_cache(maxsize=OPEN)
def _open_file(path: str, state: FileState, format: StoredFormat) -> OpenFile:
    """A file that stays open while it is among those that were read last, or somebody still reads it."""
    file = format.open(path)
    file.check(state)
    return file
