"""What is known of Parquet and Arrow files from their footers, and how one of their row groups is read."""

import os
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from headrace.columns.column import Ints
from headrace.columns.packages import package
from headrace.errors import BadOption
from headrace.sources.open import is_remote, local, open_path

ROWS = 1 << 15
"""Rows that are decoded at a time: the memory that a row group needs while it is read, beside itself."""
READERS = 16
OPEN = 64
"""Files that one process keeps open."""


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

    def schema(self) -> Any:
        pa = package("pyarrow")
        return pa.ipc.read_schema(pa.py_buffer(self.packed))

    def bytes_of(self, names: set[str]) -> int:
        """About how many bytes a row of these columns takes."""
        total = sum(size for name, size in self.sizes if name in names)
        return -(-total // max(1, int(self.rows.sum())))

    def count(self, expression: Any) -> Ints:
        """How many rows of each unit an expression keeps."""
        try:
            return np.array([self._count(unit, expression) for unit in range(len(self.rows))], np.int64)
        except package("pyarrow").ArrowInvalid as error:
            raise BadOption(f"filter({expression}) does not fit these files: {error}") from None

    def _count(self, unit: int, expression: Any) -> int:
        fragment = _fragment(self, unit)
        if self.format == "parquet":
            return int(fragment.count_rows(filter=expression))
        return int(_table(package("pyarrow"), self, unit).filter(expression).num_rows)


def read_footer(format: str, paths: list[str]) -> Footer:
    """Look into every file once."""
    if not paths:
        raise BadOption(f"Pipe.{format}() got no file: give the name of one, a pattern or a folder")
    look = _look_parquet if format == "parquet" else _look_arrow
    with ThreadPoolExecutor(min(READERS, len(paths))) as pool:
        seen = list(pool.map(look, paths))
    first = seen[0][0]
    for path, (schema, _, _, _) in zip(paths, seen, strict=True):
        _check_same(first, schema, paths[0], path)
    rows = np.array([count for _, counts, _, _ in seen for count in counts], np.int64)
    files = np.array([i for i, (_, counts, _, _) in enumerate(seen) for _ in counts], np.int64)
    numbers = np.array([n for _, counts, _, _ in seen for n in range(len(counts))], np.int64)
    masked = frozenset(name for _, _, names, _ in seen for name in names)
    sizes = {name: sum(s.get(name, 0) for _, _, _, s in seen) for name in first.names}
    plain = first.remove_metadata()
    return Footer(
        format, tuple(paths), files, numbers, rows, masked, tuple(sizes.items()), plain.serialize().to_pybytes()
    )  # fmt: skip


def _check_same(first: Any, other: Any, first_path: str, path: str) -> None:
    for name in first.names:
        if name not in other.names:
            raise BadOption(f"column {name!r} is in {first_path} but not in {path}: choose columns that all files have")
        if other.field(name).type != first.field(name).type:
            raise BadOption(
                f"column {name!r} is {first.field(name).type} in {first_path} and {other.field(name).type} in {path}: "
                f"write the files with one schema"
            )


Look = tuple[Any, list[int], set[str], dict[str, int]]


def _look_parquet(path: str) -> Look:
    with _open_parquet(path) as file:
        metadata, schema = file.metadata, file.schema_arrow
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
        return schema, [group.num_rows for group in groups], masked, sizes


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
        return file.schema, counts, masked, sizes


def _hollow(column: Any) -> bool:
    """Lists of one size in which an element is missing."""
    types = package("pyarrow").types
    return bool(types.is_fixed_size_list(column.type)) and bool(column.flatten().null_count)


# --- reading ----------------------------------------------------------------------------------------------------------


def open_unit(footer: Footer, unit: int, columns: list[str], expression: Any) -> Iterator[Any]:
    """The record batches of one unit."""
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    if footer.format == "arrow":
        table = _table(package("pyarrow"), footer, unit)
        yield from (table if expression is None else table.filter(expression)).select(columns).to_batches(ROWS)
    elif expression is not None:
        scanner = _fragment(footer, unit).scanner(
            columns=columns, filter=expression, batch_size=ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False
        )  # fmt: skip
        yield from scanner.to_batches()
    else:
        with _files.borrow(path) as file:
            yield from file.iter_batches(ROWS, row_groups=[number], columns=columns, use_threads=False)


def _table(pa: Any, footer: Footer, unit: int) -> Any:
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    with _open_arrow(path) as file:
        return pa.Table.from_batches([file.get_batch(number)])


def _fragment(footer: Footer, unit: int) -> Any:
    if footer.format != "parquet":
        return None
    dataset = package("pyarrow.dataset")
    path, number = footer.paths[footer.files[unit]], int(footer.numbers[unit])
    files, inside = filesystem_of(path)
    fragment = dataset.ParquetFileFormat().make_fragment(inside, files, row_groups=[number])
    return fragment


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
        self._idle: OrderedDict[tuple[int, str], list[Any]] = OrderedDict()
        self._lock = Lock()

    def borrow(self, path: str) -> "_Borrowed":
        return _Borrowed(self, (os.getpid(), path))

    def take(self, key: tuple[int, str]) -> Any:
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                return idle.pop()
        return _open_parquet(key[1])

    def give_back(self, key: tuple[int, str], file: Any) -> None:
        with self._lock:
            self._idle.setdefault(key, []).append(file)
            self._idle.move_to_end(key)
            over = [self._idle.popitem(last=False)[1] for _ in range(max(0, len(self._idle) - OPEN))]
        for files in over:
            for old in files:
                old.close()


class _Borrowed:
    def __init__(self, files: _Files, key: tuple[int, str]) -> None:
        self._files = files
        self._key = key

    def __enter__(self) -> Any:
        self._file = self._files.take(self._key)
        return self._file

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self._files.give_back(self._key, self._file)
        else:
            self._file.close()


_files = _Files()
