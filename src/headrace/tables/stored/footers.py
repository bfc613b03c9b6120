"""Footers: what Parquet and Arrow files say of themselves, read when a pipe is made."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import BadOption, name_file
from headrace.observe.meter import planned
from headrace.secrets import shown
from headrace.sources.bytes import FileState, Local, LocalStream, Span, is_remote, local
from headrace.sources.pool import at_once
from headrace.tables.convert.arrow_types import inner_types, is_list
from headrace.tables.packages import pa, pq
from headrace.tables.stored.arrow_stream import MAGIC, arrow_stream
from headrace.tables.stored.chunks import chunk_file

if TYPE_CHECKING:
    from pyarrow import Array, DataType, Field, Schema

WEIGHT = 10
"""A footer in memory is about so many times as large as in its file."""


class FileSummary(NamedTuple):
    """What one file says of itself."""

    schema: Any
    rows: list[int]
    """Of each of its units: row groups, or record batches."""
    masked: set[str]
    """Columns in which values are, or may be, missing."""
    sizes: dict[str, int]
    """Bytes of each column."""
    weight: int
    """Bytes that its footer takes in memory while the file is open."""
    state: tuple[int, int] = (0, 0)
    """Size and time of change (in nanoseconds) of the file, where a manifest keeps them."""


def read_summaries(format: str, files: Mapping[str, FileState]) -> list[FileSummary]:
    """Look into every file once; it must be in its state."""
    summary_of = _parquet_file if format == "parquet" else _arrow_file

    def read(path: str) -> FileSummary:
        try:
            found = summary_of(path, files[path])
            planned.note()
            return found
        except pa.ArrowInvalid as error:
            raise BadOption(
                f"{shown(path)} is not a file of the format {format} ({error}); choose the right ones, for "
                f"example with a pattern such as 'folder/*.{format}'"
            ) from None
        except Exception as error:
            name_file(error, path)
            raise

    return at_once(read, files)


def _parquet_file(path: str, state: FileState) -> FileSummary:
    with open_parquet(path, state) as file:
        return parquet_summary(file.metadata, file.schema_arrow)


def parquet_summary(metadata: Any, schema: "Schema") -> FileSummary:
    """What the footer of a Parquet file says."""
    groups = [metadata.row_group(g) for g in range(metadata.num_row_groups)]
    masked: set[str] = set()
    sizes: dict[str, int] = {}
    # Not by the path of a chunk: "a.b" is a column of that name as well as the field b of a column a.
    owners = [field for field in schema for _ in range(_leaves(field.type))]
    for group in groups:
        for number, field in enumerate(owners):
            chunk, name = group.column(number), field.name
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
            found = chunk.statistics
            if is_list(field.type) or not group.num_rows:
                continue  # an empty list is counted as a missing element; a group without rows has no statistics
            if found.null_count if found is not None and found.has_null_count else _may_miss(field):
                masked.add(name)
    return FileSummary(schema, [g.num_rows for g in groups], masked, sizes, metadata.serialized_size * WEIGHT)


def chunks_of(file: Any, group: int, columns: Iterable[str]) -> list[Span]:
    """Where these columns of a row group stand in a Parquet file, as pyarrow reads them."""
    wanted, found = set(columns), file.metadata.row_group(group)
    owners = [field.name for field in file.schema_arrow for _ in range(_leaves(field.type))]
    chunks = [found.column(number) for number, name in enumerate(owners) if name in wanted]
    return [
        (min(c.dictionary_page_offset or c.data_page_offset, c.data_page_offset), c.total_compressed_size)
        for c in chunks
    ]


def _leaves(kind: "DataType") -> int:
    """In how many columns of a Parquet file a column of this type is kept: as many as it has leaves."""
    return sum(map(_leaves, inner_types(kind))) or 1


def _may_miss(field: "Field") -> bool:
    """Whether a schema allows that something is missing in a column or inside its values."""
    kind = field.type
    return field.nullable or any(_may_miss(kind.field(i)) for i in range(kind.num_fields))


def _arrow_file(path: str, state: FileState) -> FileSummary:
    with open_arrow(path, state) as file:
        return batches_summary(file.schema, map(file.get_batch, range(file.num_record_batches)))


def batches_summary(schema: "Schema", batches: Iterable[Any]) -> FileSummary:
    """The same of record batches, where there is no footer: each is one unit."""
    counts, masked, sizes = [], set(), dict.fromkeys(schema.names, 0)
    for batch in batches:
        counts.append(batch.num_rows)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            sizes[name] += column.nbytes
            if misses(column):
                masked.add(name)
    return FileSummary(schema, counts, masked, sizes, 0)


def misses(array: "Array") -> bool:
    """Whether a value is missing: also inside lists of one size, or in a way that the array does not count."""
    types, kind = pa.types, array.type
    if array.null_count:
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return misses(array.storage)
    if types.is_dictionary(kind):
        return misses(array.dictionary)
    if types.is_run_end_encoded(kind):
        return misses(array.values)
    if types.is_fixed_size_list(kind):
        return misses(array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size))
    return False


def open_parquet(path: str, state: FileState | None = None) -> Any:
    """The file, opened by pyarrow."""
    return pq.ParquetFile(pa.PythonFile(open_source(path, state), mode="r"), pre_buffer=False)


def open_source(path: str, state: FileState | None) -> Any:
    """The file as Python opens it, whose reads are counted."""
    return chunk_file(path, state) if is_remote(path) else LocalStream(local(path))


def open_arrow(path: str, state: FileState | None = None) -> Any:
    """An Arrow file, or a file that holds an Arrow stream."""
    if is_remote(path):
        return pa.ipc.open_file(pa.PythonFile(chunk_file(path, state), mode="r"))
    name = local(path)
    with Local(name) as file:
        found = file.state
        if not found.size or file.pread(0, min(found.size, len(MAGIC))) == MAGIC:
            return pa.ipc.open_file(pa.py_buffer(file.mapped()))
    return nullcontext(arrow_stream(name, found))
