"""Footers: what Parquet and Arrow files say of themselves, read when a pipe is made."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

from headrace.errors import BadOption
from headrace.observe.meter import files, planned
from headrace.sources.counted import CountedFile
from headrace.sources.open import is_remote, local, open_path
from headrace.sources.stored.format import FileState
from headrace.tables.convert.arrow_types import inner_types
from headrace.tables.packages import pa, pq
from headrace.tables.stored.arrow_stream import MAGIC, arrow_stream

READERS = 16
WEIGHT = 10
"""A footer in memory is about so many times as large as in its file."""


State = tuple[int, int]
"""Size of a file, and time of its last change in nanoseconds."""


class Look(NamedTuple):
    """What one file says of itself."""

    schema: Any
    rows: list[int]
    masked: set[str]
    sizes: dict[str, int]
    weight: int
    state: State = (0, 0)
    """Of the file when it was looked into, where a manifest keeps it."""


def look_at(format: str, paths: Iterable[str]) -> list[Look]:
    """Look into every file once."""
    paths = list(paths)
    look = _look_parquet if format == "parquet" else _look_arrow
    with ThreadPoolExecutor(min(READERS, len(paths))) as pool:
        return list(pool.map(lambda path: _told(format, look, path), paths))


def _told(format: str, look: Callable[[str], Look], path: str) -> Look:
    try:
        found = look(path)
        planned.note()
        return found
    except pa.ArrowInvalid as error:
        raise BadOption(
            f"{path} is not a file of the format {format} ({error}); choose the right ones, for example with a pattern "
            f"such as 'folder/*.{format}'"
        ) from None


def _look_parquet(path: str) -> Look:
    with open_parquet(path) as file:
        return look_into(file.metadata, file.schema_arrow)


def look_into(metadata: Any, schema: Any) -> Look:
    """What the footer of a Parquet file says."""
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    masked: set[str] = set()
    sizes: dict[str, int] = {}
    # Not by the path of a chunk: "a.b" is a column of that name as well as the field b of a column a.
    owners = [field for field in schema for _ in range(_chunks(field.type))]
    for group in groups:
        for number, field in enumerate(owners):
            chunk, name = group.column(number), field.name
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
            found = chunk.statistics
            known = found is not None and found.has_null_count
            if field.nullable and (not known or found.null_count):
                masked.add(name)
    return Look(schema, [g.num_rows for g in groups], masked, sizes, metadata.serialized_size * WEIGHT)


def _chunks(kind: Any) -> int:
    """In how many columns of a Parquet file a column of this type is kept: as many as it has leaves."""
    return sum(map(_chunks, inner_types(kind))) or 1


def _look_arrow(path: str) -> Look:
    with open_arrow(path) as file:
        return look_through(file.schema, map(file.get_batch, range(file.num_record_batches)))


def look_through(schema: Any, batches: Iterable[Any]) -> Look:
    """What record batches show where there is no footer: each is one unit."""
    counts, masked, sizes = [], set(), dict.fromkeys(schema.names, 0)
    for batch in batches:
        counts.append(batch.num_rows)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            sizes[name] += column.nbytes
            if column.null_count or _hollow(column):
                masked.add(name)
    return Look(schema, counts, masked, sizes, 0)


def _hollow(column: Any) -> bool:
    """Something is missing inside a value, or in a way that the column does not count."""
    types = pa.types
    if types.is_run_end_encoded(column.type):
        return bool(column.values.null_count)
    return bool(types.is_fixed_size_list(column.type)) and bool(column.flatten().null_count)


def open_parquet(path: str) -> Any:
    """The file, opened by pyarrow."""
    if not is_remote(path):
        counted = pa.PythonFile(CountedFile(local(path)), mode="r")
        return pq.ParquetFile(counted, pre_buffer=False)
    return pq.ParquetFile(open_path(path), pre_buffer=True)


def open_arrow(path: str) -> Any:
    """An Arrow file, or a file that holds an Arrow stream."""
    if is_remote(path):
        return pa.ipc.open_file(open_path(path))
    files.opened()
    name = local(path)
    source = pa.memory_map(name)
    if source.read(len(MAGIC)) in (MAGIC, b""):
        return pa.ipc.open_file(source)
    return nullcontext(arrow_stream(name, FileState.of(name)))
