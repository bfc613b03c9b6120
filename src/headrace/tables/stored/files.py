"""What is known of Parquet and Arrow files from their footers, and how one of their row groups is read."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from headrace.errors import BadOption, BadPipe, name_file
from headrace.observe.meter import files
from headrace.secrets import shown
from headrace.sources.bytes import FileState, is_remote
from headrace.sources.pool import at_once
from headrace.tables.column import Ints
from headrace.tables.convert.arrow_types import inner_types
from headrace.tables.convert.from_arrow import takeable_schema, unsliced
from headrace.tables.matching import check_expression
from headrace.tables.packages import ds, pa
from headrace.tables.stored.chunks import chunk_file
from headrace.tables.stored.data_files import DataFile, Value
from headrace.tables.stored.drift import shared_schema
from headrace.tables.stored.footers import chunks_of, open_arrow, open_parquet, open_source
from headrace.tables.stored.manifest import Manifest, file_summaries
from headrace.tables.stored.source import ROWS, StoredTable

OPEN = 64
"""Files that one process keeps open, at the most."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableFiles(StoredTable):
    """Files of one schema: for each unit its file, its number there and its rows."""

    paths: tuple[str, ...]
    files: Ints
    numbers: Ints
    constants: tuple[dict[str, Value], ...]
    """For each file, the columns that are not in it (see `drift`)."""
    states: tuple[FileState, ...]
    """Of each file when the pipe was made."""

    def place(self, unit: int) -> tuple[str, int]:
        """The file of a unit, and its number there."""
        return self.paths[self.files[unit]], int(self.numbers[unit])

    def read(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        self._check(unit)
        try:
            yield from self.batches(unit, columns, expression, memory)
        except Exception as error:
            self._check(unit)  # a file that was written over is damaged in any way
            name_file(error, self.place(unit)[0])
            raise
        self._check(unit)

    def batches(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        return StoredTable.read(self, unit, columns, expression, memory)

    def _check(self, unit: int) -> None:
        """An error if the file of a unit has changed since the pipe was made."""
        path, state = self.paths[self.files[unit]], self.states[self.files[unit]]
        if not is_remote(path):  # (a store says so with every answer)
            state.check(path, FileState.of(path))

    @property
    def remote(self) -> bool:
        return any(map(is_remote, self.paths))

    def state(self, unit: int) -> FileState:
        """That of the file of a unit."""
        found: FileState = self.states[self.files[unit]]
        return found

    def completed(self, batch: Any, unit: int, columns: list[str], rows: int) -> Any:
        """The batch (None: none of its columns is in the file) with the columns that the file does not hold."""
        constants = self.constants[self.files[unit]]
        if batch is not None and constants.keys().isdisjoint(columns):
            return batch
        schema = self.schema()
        fields = [schema.field(name) for name in columns]
        arrays = [
            _constant(constants[f.name], f.type, rows) if f.name in constants else batch.column(f.name) for f in fields
        ]
        return pa.record_batch(arrays, schema=pa.schema(fields))

    def describe(self) -> str:
        return f"{len(self.paths)} files"


class ArrowFiles(TableFiles):
    """Arrow files, and files that hold Arrow streams."""

    __slots__ = ()
    format = "arrow"

    def table(self, unit: int, columns: list[str] | None) -> Any:
        path, number = self.place(unit)
        with open_arrow(path, self.state(unit)) as file:
            batch = file.get_batch(number)
            if not is_remote(path):
                files.read(batch.nbytes)  # (of a mapped file, what will be looked at)
        completed = self.completed(batch, unit, self.schema().names, batch.num_rows)
        return pa.Table.from_batches([completed])


class ParquetFiles(TableFiles):
    """Parquet files. With an expression, pyarrow's own scanner reads them: it knows which pages it can leave out."""

    __slots__ = ()
    format = "parquet"

    def count_in(self, unit: int, expression: object) -> int:
        return counted(self._fragment(unit), expression, self.schema(), int(self.rows[unit]))

    def batches(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        if expression is not None:
            yield from scanned(self._fragment(unit), columns, expression, self.schema())
            return
        path, number = self.place(unit)
        inside = [name for name in columns if name not in self.constants[self.files[unit]]]
        if not inside:
            yield self.completed(None, unit, columns, int(self.rows[unit]))
            return
        with self._lend(unit, memory) as file:
            batches = file.iter_batches(ROWS, row_groups=[number], columns=inside, use_threads=False)
            while (batch := _next(batches, path, number, inside)) is not None:
                yield self.completed(batch, unit, columns, batch.num_rows)

    def _lend(self, unit: int, memory: int) -> AbstractContextManager[Any]:
        most = min(OPEN, memory // max(1, self.weight // len(self.paths)))
        return _files.lend(self.place(unit)[0], self.state(unit), most)

    @contextmanager
    def prepared(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[None]:
        path, number = self.place(unit)
        if not is_remote(path):
            yield
            return
        if expression is not None:  # (a name that it only seems to use costs bytes, one that it hides a request)
            used = str(expression)
            columns = [*columns, *(n for n in self.schema().names if re.search(rf"\b{re.escape(n)}\b", used))]
        with self._lend(unit, memory) as file:
            spans = chunks_of(file, number, columns)
        with chunk_file(path, self.state(unit)).prepared(spans):
            yield

    def _fragment(self, unit: int) -> Any:
        path, number = self.place(unit)
        known = None
        for name, value in self.constants[self.files[unit]].items():
            if value is not None:  # what is missing needs no word: it is in the schema and not in the file
                same = ds.field(name) == value
                known = same if known is None else known & same
        source = pa.PythonFile(open_source(path, self.state(unit)), mode="r")
        kind = ds.ParquetFileFormat(pre_buffer=False)
        return kind.make_fragment(source, partition_expression=known, row_groups=[number])


def _constant(value: Value, kind: Any, rows: int) -> Any:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _next(batches: Iterator[Any], path: str, group: int, columns: list[str]) -> Any:
    try:
        return next(batches, None)
    except pa.ArrowInvalid as error:
        # Also files that pyarrow writes and does not read: https://github.com/apache/arrow/issues/35692
        raise BadPipe(
            f"row group {group} of {shown(path)} cannot be read ({error}): write the file anew, or choose "
            f"other columns than {', '.join(columns[:20])} with columns=[...]"
        ) from None


def counted(fragment: Any, expression: object, schema: Any, rows: int) -> int:
    """How many of its `rows` rows an expression keeps of a fragment. Where it keeps all, because of the folder's name,
    pyarrow counts the rows of the whole file, though the fragment is one row group of it."""
    schema = takeable_schema(schema)
    if _by_statistics(expression, schema):
        return min(rows, int(fragment.scanner(filter=expression, schema=schema).count_rows()))
    return sum(batch.column(0).true_count for batch in _scanned(fragment, {"keep": expression}, schema))


def _by_statistics(expression: object, schema: Any) -> bool:
    """Whether the statistics of a row group may say that none of its rows is kept, or all: those of floats leave NaN
    out, and pyarrow takes it for a number between the smallest and the largest; those of extension types it gets, and
    cannot compare."""
    try:
        check_expression(expression, pa.schema([field for field in schema if not _misleads(field.type)]))
    except BadOption:
        return False
    return True


def _misleads(kind: Any) -> bool:
    odd = pa.types.is_floating(kind) or isinstance(kind, pa.BaseExtensionType)
    return bool(odd) or any(map(_misleads, inner_types(kind)))


def scanned(fragment: Any, columns: list[str], expression: object, schema: Any) -> Iterator[Any]:
    """The record batches of a fragment, without reading ahead."""
    if expression is None:
        yield from _scanned(fragment, columns, schema)
        return
    # Asked of every row, as one more column. As a filter it would be asked of statistics first.
    keep = "".join(columns) + "?"
    asked = {**{name: ds.field(name) for name in columns}, keep: expression}
    for batch in _scanned(fragment, asked, takeable_schema(schema)):
        whole = pa.record_batch([*map(unsliced, batch.columns)], schema=batch.schema)
        yield whole.filter(whole.column(keep)).select(columns)


def _scanned(fragment: Any, columns: list[str] | dict[str, Any], schema: Any) -> Iterator[Any]:
    scanner = fragment.scanner(
        columns=columns, batch_size=ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False, schema=schema
    )
    yield from scanner.to_batches()


def read_footer(
    format: str,
    files: list[DataFile],
    columns: Sequence[str] | None = None,
    drift: str = "refuse",
    manifest: Manifest | None = None,
) -> TableFiles:
    """The files as one table, from their footers or the manifest; `columns` are those that will be asked for."""
    if not files:
        raise BadOption(f"Pipe.{format}() got no file: give the name of one, a pattern or a folder")
    paths = [file.path for file in files]
    states = tuple(at_once(FileState.of, paths) if any(map(is_remote, paths)) else map(FileState.of, paths))
    found = file_summaries(format, paths, states, manifest)
    agreed = shared_schema(files, found, columns, drift)
    names = agreed.schema.names
    kind = ParquetFiles if format == "parquet" else ArrowFiles
    return kind(
        paths=tuple(paths),
        files=np.array([i for i, summary in enumerate(found) for _ in summary.rows], np.int64),
        numbers=np.array([n for summary in found for n in range(len(summary.rows))], np.int64),
        rows=np.array([count for summary in found for count in summary.rows], np.int64),
        masked=agreed.masked & frozenset(names),
        sizes={name: sum(summary.sizes.get(name, 0) for summary in found) for name in names},
        packed=agreed.schema.remove_metadata().serialize().to_pybytes(),
        constants=agreed.constants,
        states=states,
        weight=max(summary.weight for summary in found) * len(files),
    )


class _OpenFiles:
    """The Parquet files that this process keeps open: each is used by one thread at a time."""

    def __init__(self) -> None:
        self._idle: list[tuple[tuple[Any, ...], Any]] = []
        """The one used last stands last."""
        self._lent = 0
        self._lock = Lock()

    @contextmanager
    def lend(self, path: str, state: FileState, most: int) -> Iterator[Any]:
        """The file that was `state` under this name; up to `most` stay open, counting those that are lent."""
        key, file = (os.getpid(), path, state), None
        with self._lock:
            self._lent += 1
            for place, (idle, found) in enumerate(self._idle):
                if idle == key:
                    del self._idle[place]
                    file = found
                    break
        try:
            if file is None:
                self._shrink(most)
                file = open_parquet(path, state)
            yield file
        finally:
            with self._lock:
                self._lent -= 1
                if file is not None:  # also after an error: the file itself is not hurt by it
                    self._idle.append((key, file))
            self._shrink(most)

    def _shrink(self, most: int) -> None:
        with self._lock:
            count = max(0, len(self._idle) + self._lent - max(1, most))
            gone, self._idle = self._idle[:count], self._idle[count:]
        for _, file in gone:
            file.close()


_files = _OpenFiles()
