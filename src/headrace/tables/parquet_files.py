"""What is known of Parquet and Arrow files from their footers, and how one of their row groups is read."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from headrace.errors import BadOption, BadPipe
from headrace.observe.meter import files
from headrace.sources.open import is_remote, local
from headrace.sources.stored.form import FileState
from headrace.tables.column import Ints
from headrace.tables.data_files import DataFile, Value
from headrace.tables.drift import agree
from headrace.tables.footers import open_arrow, open_parquet
from headrace.tables.manifest import Manifest, looks
from headrace.tables.matching import reason
from headrace.tables.packages import package

ROWS = 1 << 13
"""Rows that are decoded at a time: the memory that a row group needs while it is read, beside itself."""
OPEN = 64
"""Files that one process keeps open, at the most."""


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """Files of one schema: for each unit its file, its number there and its rows."""

    format: str
    paths: tuple[str, ...]
    files: Ints
    numbers: Ints
    rows: Ints
    masked: frozenset[str]
    """Columns in which values may be missing."""
    sizes: tuple[tuple[str, int], ...]
    """Bytes of each column, encoded but not compressed, in all files."""
    packed: bytes
    """The Arrow schema; as bytes, so that no package has to be imported to carry it."""
    constants: tuple[dict[str, Value], ...]
    """For each file, the columns that are not in it (see `drift`)."""
    states: tuple[FileState | None, ...]
    """Of each file when it was looked into; None where it is remote."""
    heaviest: int = 0
    """Bytes that the footer of an open file takes in memory, at the most."""
    made: str = field(default_factory=lambda: uuid4().hex)
    """One for each look: remote files, of which nobody knows cheaply whether they are the same, are opened anew."""

    @property
    def weight(self) -> int:
        return self.heaviest * len(self.paths)

    def schema(self) -> Any:
        pa = package("pyarrow")
        return pa.ipc.read_schema(pa.py_buffer(self.packed))

    def bytes_of(self, names: set[str]) -> int:
        """About how many bytes a row of these columns takes."""
        total = sum(size for name, size in self.sizes if name in names)
        return -(-total // max(1, int(self.rows.sum())))

    def count(self, expression: object) -> Ints:
        """How many rows of each unit an expression keeps."""
        return counted(self._count, len(self.rows), expression)

    def _count(self, unit: int, expression: object) -> int:
        if self.format == "parquet":
            return int(_fragment(self, unit).scanner(filter=expression, schema=self.schema()).count_rows())
        return int(_table(self, unit).filter(expression).num_rows)

    def read(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        """The record batches of one unit; footers of files that stay open take up to `memory` bytes."""
        self._check(unit)
        try:
            yield from self._batches(unit, columns, expression, memory)
        except Exception:
            self._check(unit)  # a file that was written over is damaged in any way
            raise
        self._check(unit)

    def _check(self, unit: int) -> None:
        """An error if the file of a unit is not the one that was looked into."""
        path, state = self.paths[self.files[unit]], self.states[self.files[unit]]
        if state is not None:
            state.check(path, FileState.of(local(path)))

    def _batches(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        if self.format == "arrow":
            table = _table(self, unit)
            yield from (table if expression is None else table.filter(expression)).select(columns).to_batches(ROWS)
        elif expression is not None:
            yield from scanned(_fragment(self, unit), columns, expression, schema=self.schema())
        else:
            yield from self._read_group(unit, columns, memory)

    def _read_group(self, unit: int, columns: list[str], memory: int) -> Iterator[Any]:
        path, number = self.paths[self.files[unit]], int(self.numbers[unit])
        inside = [name for name in columns if name not in self.constants[self.files[unit]]]
        if not inside:
            yield self._completed(None, unit, columns, int(self.rows[unit]))
            return
        with _files.borrow(
            path, self.states[self.files[unit]] or self.made, min(OPEN, memory // max(1, self.heaviest))
        ) as file:
            batches = file.iter_batches(ROWS, row_groups=[number], columns=inside, use_threads=False)
            while (batch := _next(batches, path, number, inside)) is not None:
                yield self._completed(batch, unit, columns, batch.num_rows)

    def _completed(self, batch: Any, unit: int, columns: list[str], rows: int) -> Any:
        """The batch (None: none of its columns is in the file) with the columns that the file does not hold."""
        constants = self.constants[self.files[unit]]
        if batch is not None and constants.keys().isdisjoint(columns):
            return batch
        pa, schema = package("pyarrow"), self.schema()
        fields = [schema.field(name) for name in columns]
        arrays = [
            pa.repeat(pa.scalar(constants[f.name], f.type), rows) if f.name in constants else batch.column(f.name)
            for f in fields
        ]
        return pa.record_batch(arrays, schema=pa.schema(fields))

    def describe(self) -> str:
        return f"{len(self.paths)} files"


def _next(batches: Iterator[Any], path: str, group: int, columns: list[str]) -> Any:
    try:
        return next(batches, None)
    except package("pyarrow").ArrowInvalid as error:
        # Also files that pyarrow writes and does not read: https://github.com/apache/arrow/issues/35692
        raise BadPipe(
            f"row group {group} of {path} cannot be read ({error}): write the file anew, or choose other columns than "
            f"{', '.join(columns[:20])} with columns=[...]"
        ) from None


def counted(count: Callable[[int, Any], int], units: int, expression: object) -> Ints:
    try:
        return np.array([count(unit, expression) for unit in range(units)], np.int64)
    except package("pyarrow").ArrowInvalid as error:
        raise BadOption(f"filter({expression}) does not fit these columns: {reason(error)}") from None


def scanned(fragment: Any, columns: list[str], expression: object = None, **more: object) -> Iterator[Any]:
    """The record batches of a fragment, without reading ahead."""
    scanner = fragment.scanner(
        columns=columns, filter=expression, batch_size=ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False,
        **more,
    )  # fmt: skip
    yield from scanner.to_batches()


def read_footer(
    format: str,
    files: list[DataFile],
    columns: Sequence[str] | None = None,
    drift: str = "refuse",
    manifest: Manifest | None = None,
) -> Footer:
    """Look into every file once, or into the manifest; `columns` are those that will be asked for."""
    if not files:
        raise BadOption(f"Pipe.{format}() got no file: give the name of one, a pattern or a folder")
    states = tuple(None if is_remote(file.path) else FileState.of(local(file.path)) for file in files)
    seen = looks(format, [file.path for file in files], manifest)
    agreed = agree(files, seen, columns, drift)
    names = agreed.schema.names
    return Footer(
        format,
        tuple(file.path for file in files),
        files=np.array([i for i, look in enumerate(seen) for _ in look.rows], np.int64),
        numbers=np.array([n for look in seen for n in range(len(look.rows))], np.int64),
        rows=np.array([count for look in seen for count in look.rows], np.int64),
        masked=agreed.masked & frozenset(names),
        sizes=tuple((name, sum(look.sizes.get(name, 0) for look in seen)) for name in names),
        packed=agreed.schema.remove_metadata().serialize().to_pybytes(),
        constants=agreed.constants,
        states=states,
        heaviest=max(look.weight for look in seen),
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def _table(footer: Footer, unit: int) -> Any:
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    with open_arrow(path) as file:
        batch = file.get_batch(number)
        files.read(batch.nbytes)  # (of a mapped file, what will be looked at)
    completed = footer._completed(batch, unit, footer.schema().names, batch.num_rows)
    return package("pyarrow").Table.from_batches([completed])


def _fragment(footer: Footer, unit: int) -> Any:
    dataset = package("pyarrow.dataset")
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    files, inside = filesystem_of(path)
    known = None
    for name, value in footer.constants[footer.files[unit]].items():
        column = dataset.field(name)
        same = column.is_null() if value is None else column == value
        known = same if known is None else known & same
    return dataset.ParquetFileFormat().make_fragment(inside, files, partition_expression=known, row_groups=[number])


def filesystem_of(path: str) -> tuple[Any, str]:
    """The pyarrow file system of a path or URL."""
    fs = package("pyarrow.fs")
    if not is_remote(path):
        return fs.LocalFileSystem(), os.path.abspath(local(path))
    from headrace.sources.open import filesystem

    found, inside = filesystem(path)
    return fs.PyFileSystem(fs.FSSpecHandler(found)), inside


class _Key(NamedTuple):
    """An open file: of which process, and which file it was under this name."""

    process: int
    path: str
    state: FileState | str


class _Files:
    """Open Parquet files of this process: each is used by one thread at a time."""

    def __init__(self) -> None:
        self._idle: list[tuple[_Key, Any]] = []
        """The one used last stands last."""
        self._lent = 0
        self._lock = Lock()

    def borrow(self, path: str, state: FileState | str, most: int) -> "_Borrowed":
        return _Borrowed(self, _Key(os.getpid(), path, state), most)

    def take(self, key: "_Key", most: int) -> Any:
        with self._lock:
            self._lent += 1
            for place, (idle, file) in enumerate(self._idle):
                if idle == key:
                    del self._idle[place]
                    return file
            over = self._over(most)
        _close(over)
        return open_parquet(key.path)

    def give_back(self, key: "_Key", file: object, most: int) -> None:
        with self._lock:
            self._lent -= 1
            self._idle.append((key, file))
            over = self._over(most)
        _close(over)

    def _over(self, most: int) -> list[Any]:
        """Files that are one too many, counting those that are lent."""
        count = max(0, len(self._idle) + self._lent - max(1, most))
        gone, self._idle = self._idle[:count], self._idle[count:]
        return [file for _, file in gone]


def _close(files: list[Any]) -> None:
    for file in files:
        file.close()


class _Borrowed:
    def __init__(self, files: _Files, key: _Key, most: int) -> None:
        self._files = files
        self._key = key
        self._most = most

    def __enter__(self) -> Any:
        self._file = self._files.take(self._key, self._most)
        return self._file

    def __exit__(self, *_: object) -> None:
        # Also after an error: the file itself is not hurt by it.
        self._files.give_back(self._key, self._file, self._most)


_files = _Files()
