"""Stored files: the samples of many files of one form, any of them by its position.

Files come in the order given, and so do the samples of each. A sample is one read of just its bytes, so whatever order
a job asks for them in, and on however many ranks, every byte is read once an epoch.
"""

import os
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BadOption
from headrace.op import Source
from headrace.sources.stored.form import FileState, Ints, OpenFile, Spans, StoredFormat
from headrace.sources.stored.index import spans_of

UNIT = 32 << 20
"""Bytes that are cheap to read together: large files are cut into units of about so many."""
OPEN = 128
"""Files that a process keeps open."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredFiles(Source[Any]):
    """Samples by position, over `paths`. `folder` is where indices are kept, if not beside the files."""

    paths: tuple[str, ...]
    form: StoredFormat
    folder: str | None = None
    states: tuple[FileState, ...] = ()
    """Of each file when the pipe was made: a file that changes while it is read is an error."""

    def __post_init__(self) -> None:
        if not self.paths:
            raise BadOption(f"no {self.form.name} files: give at least one path")
        if not self.states:
            object.__setattr__(self, "states", tuple(map(FileState.of, self.paths)))

    def size(self) -> int:
        return int(self._catalog().ends[-1])

    def get(self, position: int) -> Any:
        catalog = self._catalog()
        number = int(np.searchsorted(catalog.ends, position, side="right"))
        spans = catalog.spans[number]
        row = position - (int(catalog.ends[number - 1]) if number else 0)
        file = _files.open(self.paths[number], self.states[number])
        start, size = int(spans.starts[row]), int(spans.sizes[row])
        try:
            return self.form.decode(file.read(start, size), file, start)
        except Exception as error:
            error.add_note(f"(sample {row} of {self.paths[number]}, at byte {start})")
            raise

    def unit_ends(self) -> Ints:
        """The first position after each unit of about UNIT bytes. A unit never crosses files."""
        found = []
        first = 0
        for spans in self._catalog().spans:
            count = len(spans.starts)
            if count:
                cuts = np.flatnonzero(np.diff(np.asarray(spans.starts) // UNIT)) + 1
                found += [first + cuts, np.array([first + count])]
            first += count
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def stored_bytes(self) -> int:
        """Bytes of all samples."""
        return sum(int(spans.sizes.sum()) for spans in self._catalog().spans)

    def settle(self) -> None:
        self._catalog()

    def describe(self) -> str:
        return f"{self.form.name}({len(self.paths)} files, {self.size()} samples)"

    def identity(self) -> tuple[Any, ...]:
        catalog = self._catalog()
        counts = np.diff(catalog.ends, prepend=0).tolist()
        names = [os.path.basename(path) for path in self.paths]
        said = repr(
            (self.form, [(name, state.size, n) for name, state, n in zip(names, self.states, counts, strict=True)])
        )
        return ("stored", self.form.name, blake2b(said.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest())

    @classmethod
    def name(cls) -> str:
        return "stored"

    def _catalog(self) -> "_Catalog":
        found: _Catalog = _catalog(self.paths, self.states, self.form, self.folder)
        return found


class _Catalog(NamedTuple):
    """Where the samples of all files stand, and the first position after each file."""

    spans: tuple[Spans, ...]
    ends: Ints


@lru_cache(maxsize=16)
def _catalog(paths: tuple[str, ...], states: tuple[FileState, ...], form: StoredFormat, folder: str | None) -> _Catalog:
    spans = tuple(spans_of(path, form, folder, state) for path, state in zip(paths, states, strict=True))
    return _Catalog(spans, np.cumsum([len(found.starts) for found in spans], dtype=np.int64))


class _OpenFiles:
    """The files that were read last, kept open."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[str, FileState], OpenFile] = OrderedDict()
        self._lock = Lock()

    def open(self, path: str, state: FileState) -> OpenFile:
        file = self._files.get((path, state))
        if file is None:
            file = OpenFile(path)
            file.check(state)
            with self._lock:
                self._files[path, state] = file
                while len(self._files) > OPEN:
                    self._files.popitem(last=False)  # closed when nobody reads it any more
        return file


_files = _OpenFiles()
