"""What is known of Parquet and Arrow files from their footers, and how one of their row groups is read."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BadOption
from headrace.sources.open import is_remote, local, open_path
from headrace.tables.column import Ints
from headrace.tables.packages import package

ROWS = 1 << 13
"""Rows that are decoded at a time: the memory that a row group needs while it is read, beside itself."""
READERS = 16
OPEN = 64
"""Files that one process keeps open, at the most."""
WEIGHT = 10
"""A footer in memory is about so many times as large as in its file."""


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
    heaviest: int = 0
    """Bytes that the footer of an open file takes in memory, at the most."""

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

    def count(self, expression: Any) -> Ints:
        """How many rows of each unit an expression keeps."""
        return counted(self._count, len(self.rows), expression)

    def _count(self, unit: int, expression: Any) -> int:
        if self.format == "parquet":
            return int(_fragment(self, unit).count_rows(filter=expression))
        return int(_table(package("pyarrow"), self, unit).filter(expression).num_rows)

    def read(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        """The record batches of one unit; footers of files that stay open take up to `memory` bytes."""
        path, number = self.paths[self.files[unit]], int(self.numbers[unit])
        if self.format == "arrow":
            table = _table(package("pyarrow"), self, unit)
            yield from (table if expression is None else table.filter(expression)).select(columns).to_batches(ROWS)
        elif expression is not None:
            yield from scanned(_fragment(self, unit), columns, expression)
        else:
            with _files.borrow(path, min(OPEN, memory // max(1, self.heaviest))) as file:
                yield from file.iter_batches(ROWS, row_groups=[number], columns=columns, use_threads=False)

    def describe(self) -> str:
        return f"{len(self.paths)} files"


def counted(count: Callable[[int, Any], int], units: int, expression: Any) -> Ints:
    try:
        return np.array([count(unit, expression) for unit in range(units)], np.int64)
    except package("pyarrow").ArrowInvalid as error:
        raise BadOption(f"filter({expression}) does not fit these columns: {error}") from None


def scanned(fragment: Any, columns: list[str], expression: Any = None, **more: Any) -> Iterator[Any]:
    """The record batches of a fragment, without reading ahead."""
    scanner = fragment.scanner(
        columns=columns, filter=expression, batch_size=ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False,
        **more,
    )  # fmt: skip
    yield from scanner.to_batches()


def read_footer(format: str, paths: list[str]) -> Footer:
    """Look into every file once."""
    if not paths:
        raise BadOption(f"Pipe.{format}() got no file: give the name of one, a pattern or a folder")
    look = _look_parquet if format == "parquet" else _look_arrow
    with ThreadPoolExecutor(min(READERS, len(paths))) as pool:
        seen = list(pool.map(look, paths))
    first = seen[0].schema
    for path, found in zip(paths, seen, strict=True):
        _check_same(first, found.schema, paths[0], path)
    sizes = {name: sum(look.sizes.get(name, 0) for look in seen) for name in first.names}
    return Footer(
        format,
        tuple(paths),
        files=np.array([i for i, look in enumerate(seen) for _ in look.rows], np.int64),
        numbers=np.array([n for look in seen for n in range(len(look.rows))], np.int64),
        rows=np.array([count for look in seen for count in look.rows], np.int64),
        masked=frozenset(name for look in seen for name in look.masked),
        sizes=tuple(sizes.items()),
        packed=first.remove_metadata().serialize().to_pybytes(),
        heaviest=max(look.weight for look in seen),
    )


def _check_same(first: Any, other: Any, first_path: str, path: str) -> None:
    for name in first.names:
        if name not in other.names:
            raise BadOption(f"column {name!r} is in {first_path} but not in {path}: choose columns that all files have")
        if other.field(name).type != first.field(name).type:
            raise BadOption(
                f"column {name!r} is {first.field(name).type} in {first_path} and {other.field(name).type} in {path}: "
                f"write the files with one schema"
            )


class Look(NamedTuple):
    """What one file says of itself."""

    schema: Any
    rows: list[int]
    masked: set[str]
    sizes: dict[str, int]
    weight: int


def _look_parquet(path: str) -> Look:
    with _open_parquet(path) as file:
        return look_into(file.metadata, file.schema_arrow)


def look_into(metadata: Any, schema: Any) -> Look:
    """What the footer of a Parquet file says."""
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    masked: set[str] = set()
    sizes: dict[str, int] = {}
    for group in groups:
        for number in range(group.num_columns):
            chunk = group.column(number)
            name = chunk.path_in_schema.partition(".")[0]
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
            found = chunk.statistics
            known = found is not None and found.has_null_count
            if schema.field(name).nullable and (not known or found.null_count):
                masked.add(name)
    return Look(schema, [g.num_rows for g in groups], masked, sizes, metadata.serialized_size * WEIGHT)


def _look_arrow(path: str) -> Look:
    with _open_arrow(path) as file:
        counts, masked, sizes = [], set(), dict.fromkeys(file.schema.names, 0)
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            counts.append(batch.num_rows)
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                sizes[name] += column.nbytes
                if column.null_count or _hollow(column):
                    masked.add(name)
        return Look(file.schema, counts, masked, sizes, 0)


def _hollow(column: Any) -> bool:
    """Something is missing inside a value, or in a way that the column does not count."""
    types = package("pyarrow").types
    if types.is_run_end_encoded(column.type):
        return bool(column.values.null_count)
    return bool(types.is_fixed_size_list(column.type)) and bool(column.flatten().null_count)


# --- reading ----------------------------------------------------------------------------------------------------------


def _table(pa: Any, footer: Footer, unit: int) -> Any:
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    with _open_arrow(path) as file:
        return pa.Table.from_batches([file.get_batch(number)])


def _fragment(footer: Footer, unit: int) -> Any:
    dataset = package("pyarrow.dataset")
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    files, inside = filesystem_of(path)
    return dataset.ParquetFileFormat().make_fragment(inside, files, row_groups=[number])


def filesystem_of(path: str) -> tuple[Any, str]:
    """The pyarrow file system of a path or URL."""
    fs = package("pyarrow.fs")
    if not is_remote(path):
        return fs.LocalFileSystem(), os.path.abspath(local(path))
    from headrace.sources.open import filesystem

    found, inside = filesystem(path)
    return fs.PyFileSystem(fs.FSSpecHandler(found)), inside


def _open_parquet(path: str) -> Any:
    parquet = package("pyarrow.parquet")
    if not is_remote(path):
        return parquet.ParquetFile(local(path), pre_buffer=False)
    return parquet.ParquetFile(open_path(path), pre_buffer=True)


def _open_arrow(path: str) -> Any:
    pa = package("pyarrow")
    return pa.ipc.open_file(pa.memory_map(local(path)) if not is_remote(path) else open_path(path))


class _Files:
    """Open Parquet files of this process: each is used by one thread at a time."""

    def __init__(self) -> None:
        self._idle: list[tuple[tuple[int, str], Any]] = []
        """The one used last stands last."""
        self._lent = 0
        self._lock = Lock()

    def borrow(self, path: str, most: int) -> "_Borrowed":
        return _Borrowed(self, (os.getpid(), path), most)

    def take(self, key: tuple[int, str], most: int) -> Any:
        with self._lock:
            self._lent += 1
            for place, (idle, file) in enumerate(self._idle):
                if idle == key:
                    del self._idle[place]
                    return file
            over = self._over(most)
        _close(over)
        return _open_parquet(key[1])

    def give_back(self, key: tuple[int, str], file: Any, most: int) -> None:
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
    def __init__(self, files: _Files, key: tuple[int, str], most: int) -> None:
        self._files = files
        self._key = key
        self._most = most

    def __enter__(self) -> Any:
        self._file = self._files.take(self._key, self._most)
        return self._file

    def __exit__(self, *_: Any) -> None:
        # Also after an error: the file itself is not hurt by it.
        self._files.give_back(self._key, self._file, self._most)


_files = _Files()
