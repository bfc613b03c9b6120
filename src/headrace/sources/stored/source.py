"""Stored files: the samples of many files of one format, any of them by its position.

Positions count through the files in the order given. A sample is one read of just its bytes, so in any order, and on
any number of ranks, every byte is read once an epoch. Neighbours are cheaper to read than scattered samples, though,
and a file is best opened by one rank: files are cut into units of some megabytes, which a shuffled order of large data
keeps together (`plan.parts`).
"""

import os
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BadOption
from headrace.observe.meter import planned
from headrace.op import Here, Indexed, Source
from headrace.plan.units import Units, choose_arrangement
from headrace.secrets import shown
from headrace.sources.bytes import ByteFile, FileState, Local, is_remote
from headrace.sources.pool import at_once
from headrace.sources.stored.fetched import FetchedUnits, OpenedUnits
from headrace.sources.stored.format import MEMORY, Ints, Spans, StoredFormat
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
    opened: OpenedUnits = field(default_factory=OpenedUnits, repr=False)
    """Of remote files, units that are in memory."""
    verb = "stored"

    def __post_init__(self) -> None:
        if not self.paths:
            raise BadOption(f"no {self.format.name} files: give at least one path")
        if not self.states:
            object.__setattr__(self, "states", tuple(at_once(self._state_of, self.paths)))

    def _state_of(self, path: str) -> FileState:
        sidecar = self.format.sidecar(path)
        return FileState.of(path)._replace(sidecar=None if sidecar is None else FileState.of(sidecar))

    def size(self) -> int:
        return self._catalog.ends[-1]

    def get(self, position: int) -> Any:
        catalog = self._catalog
        number = bisect_right(catalog.ends, position)
        spans = catalog.spans[number]
        row = position - (catalog.ends[number - 1] if number else 0)
        file = self._open(number)
        start, size = int(spans.starts[row]), int(spans.sizes[row])
        try:
            if isinstance(file, Local):
                data = file.pread(start, size)
                file.check_again()
            else:
                data = self._fetched.read(position, file, start, size)
            return self.format.decode(data, file, start)
        except Exception as error:
            where = self.format.place_of(spans, row)
            error.add_note(f"(sample {row}, counted from 0, of {shown(self.paths[number])}, {where})")
            raise

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        assert found is not None
        self._check_sidecars()
        found.units = self.units()
        if self._remote:
            found.ahead = self._fetched.ahead(found.length)
        return found

    @cached_property
    def _remote(self) -> bool:
        return any(map(is_remote, self.paths))

    @property
    def _fetched(self) -> FetchedUnits:
        """The units of remote files that this process has opened."""
        opened = self.opened
        if opened.units is None:
            catalog = self._catalog
            opened.units = FetchedUnits(catalog.spans, catalog.ends, catalog.unit_ends, self._open, opened.slots)
        return opened.units

    def _open(self, number: int) -> ByteFile:
        # (Who fetches a remote file is not the same after a fork.)
        process = os.getpid() if self._remote else 0
        return _open_file(self.paths[number], self.states[number], self.format, process)

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
        if self._remote:
            hold = min(hold, self._fetched.hold)
        return Units(catalog.unit_ends, hold, catalog.total, catalog.largest, "stretches of files")

    def settle(self) -> None:
        self.size()
        if self._remote:
            _ = self._fetched  # (its memory is shared with processes that are forked now)

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
        return StoredFiles, (self.paths, self.format, self.folder, self.states, self.opened)


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
    def look(turn: int) -> tuple[Spans, Ints, int]:
        """The samples of a file, where in them its units end, and what stays in memory while one is read."""
        with format.open(paths[turn], states[turn]) as file:
            found = spans_in(file, format, folder)
            # (Empty samples may begin where the file ends, behind the last unit: they belong to a file all the same.)
            inside = np.append(np.searchsorted(found.starts, format.unit_ends(file, UNIT)), len(found.starts))
            planned.note()
            return found, np.unique(inside[inside > 0]), format.unit_memory(file)

    looked = at_once(look, range(len(paths))) if any(map(is_remote, paths)) else [*map(look, range(len(paths)))]
    spans = tuple(found for found, _, _ in looked)
    ends = list(accumulate(len(found.starts) for found in spans))
    unit_ends = [first + inside for first, (_, inside, _) in zip([0, *ends], looked, strict=False)]
    total = sum(state.size for state in states)
    largest = max(memory for _, _, memory in looked)
    return _Catalog(spans, ends, np.concatenate(unit_ends), total, largest)


@lru_cache(maxsize=OPEN)
def _open_file(path: str, state: FileState, format: StoredFormat, process: int) -> ByteFile:
    """A file that stays open while it is among those that were read last, or somebody still reads it."""
    return format.open(path, state)
