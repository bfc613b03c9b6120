"""Lance data sets, through the official reader: stretches of fragments, as units of rows.

A data set has versions; a pipe keeps to the one that was the newest when it was made. Deleted rows have no position.
The reader has threads of its own, so each process opens the data set for itself (see `packages`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.sources.bytes import DamagedFile, FileState
from headrace.sources.extra import import_extra
from headrace.tables.column import Ints
from headrace.tables.packages import check_threads
from headrace.tables.stored.source import FromUnits, StoredTable, from_units

UNIT = 4 << 20
"""Bytes that are read together: fragments are cut into stretches of about so many. Part of the order."""
LOOKED_AT = 256
"""Rows that are looked at to know how large they are."""
COUNTED = 1 << 30
"""Bytes of a column up to which its missing values are counted; in a larger one there may be some."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LanceTable(StoredTable):
    """One version of a data set."""

    format = "lance"
    path: str
    version: int
    versions: FileState
    """Of the folder that lists its versions: another data set in its place has versions of the same numbers."""
    fragments: Ints
    """For each unit, the place of its fragment among all."""
    firsts: Ints
    """Its first row there."""

    def table(self, unit: int, columns: list[str] | None) -> Any:
        fragment = _fragments(self.path, self.version, self.versions)[int(self.fragments[unit])]
        try:
            with _panics_as_errors(self.path):
                return fragment.to_table(columns, offset=int(self.firsts[unit]), limit=int(self.rows[unit]))
        except (OSError, ValueError) as error:
            raise DamagedFile(
                f"rows {self.firsts[unit]} to {self.firsts[unit] + self.rows[unit]} of fragment "
                f"{self.fragments[unit]} of {self.path} cannot be read ({error})"
            ) from None

    def describe(self) -> str:
        return f"version {self.version} of a Lance data set"


def is_lance(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "_versions")) and os.path.isdir(os.path.join(path, "data"))


def from_lance(path: str) -> FromUnits:
    """The rows of a Lance data set as it is now."""
    lance = import_extra("lance", "lance")
    check_threads("lance")
    try:
        with _panics_as_errors(path):
            dataset = lance.dataset(path)
            schema = dataset.schema.remove_metadata()
            counts = [int(fragment.count_rows()) for fragment in dataset.get_fragments()]
            sizes = _sizes(dataset, schema, sum(counts))
            masked = _masked(dataset, schema, sizes, sum(counts))
    except (OSError, ValueError) as error:
        raise BadOption(f"{path} cannot be read as a Lance data set ({error})") from None
    step = max(1, UNIT // max(1, sum(size for _, size in sizes)))
    cuts = [(number, first) for number, count in enumerate(counts) for first in range(0, count, step)]
    rows = [min(step, counts[number] - first) for number, first in cuts]
    table = LanceTable(
        path=os.path.abspath(path),
        version=int(dataset.version),
        versions=FileState.of(os.path.join(path, "_versions")),
        fragments=np.array([number for number, _ in cuts], np.int64),
        firsts=np.array([first for _, first in cuts], np.int64),
        rows=np.array(rows, np.int64),
        masked=masked,
        sizes={name: size * sum(counts) for name, size in sizes},
        packed=schema.serialize().to_pybytes(),
    )
    return from_units(table)


@contextmanager
def _panics_as_errors(path: str) -> Iterator[None]:
    """An ordinary error for a panic of Lance's reader, which no `except Exception` would see."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedFile(f"{path} is damaged: the reader of Lance gave up ({error})") from None


def _sizes(dataset: Any, schema: Any, count: int) -> tuple[tuple[str, int], ...]:
    """Bytes of a row in each column, by a few rows from everywhere."""
    if not count:
        return tuple((name, 1) for name in schema.names)
    places = np.unique(np.linspace(0, count - 1, min(LOOKED_AT, count)).astype(np.int64)).tolist()
    found = dataset.take(places)
    return tuple((name, -(-found.column(name).nbytes // len(places))) for name in schema.names)


def _masked(dataset: Any, schema: Any, sizes: tuple[tuple[str, int], ...], count: int) -> frozenset[str]:
    """Columns in which values are missing, or may be."""
    found = set()
    for name, size in sizes:
        if not schema.field(name).nullable:
            continue
        quoted = "`" + name.replace("`", "``") + "`"
        if size * count > COUNTED or dataset.count_rows(filter=f"{quoted} IS NULL"):
            found.add(name)
    return frozenset(found)


@lru_cache(maxsize=16)
def _opened(process: int, path: str, version: int, versions: FileState) -> Any:
    try:
        with _panics_as_errors(path):
            return import_extra("lance", "lance").dataset(path, version=version).get_fragments()
    except (OSError, ValueError) as error:
        raise DamagedFile(f"version {version} of {path} cannot be opened any more ({error})") from None


def _fragments(path: str, version: int, versions: FileState) -> Any:
    check_threads("lance")
    return _opened(os.getpid(), path, version, versions)
