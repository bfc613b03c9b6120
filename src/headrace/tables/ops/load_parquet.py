"""Load parquet: tables, one row group at a time (extra `arrow`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption, name_file
from headrace.ops.files.per_file import PerFile, path_and_stream
from headrace.sources.extra import import_extra, require
from headrace.sources.stream import StreamWrapper

FORMS = ("rows", "columns", "table", "pandas")


@dataclass(frozen=True, slots=True)
class LoadParquet(PerFile[Any]):
    """The row groups of each file: as rows (a dict each), columns (a dict of arrays), pyarrow tables, or pandas frames.

    A file is a path, a `(path, stream)`, or a `(path, number)`, which means that one row group.
    """

    columns: Sequence[str] | None = None
    form: str = "rows"
    use_threads: bool = False

    def __post_init__(self) -> None:
        require("arrow", "pyarrow")
        if self.form not in FORMS:
            raise BadOption(f"load_parquet(form=) is one of {', '.join(FORMS)}, not {self.form!r}")
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))

    def spread(self, sample: object) -> Iterator[Any]:
        only = None
        if isinstance(sample, tuple) and len(sample) == 2 and isinstance(sample[1], int):
            sample, only = sample
        path, stream = path_and_stream(sample)
        try:
            inner = stream.file_obj if isinstance(stream, StreamWrapper) else stream
            with import_extra("arrow", "pyarrow.parquet").ParquetFile(inner) as file:
                for group in range(file.num_row_groups) if only is None else (only,):
                    wanted = list(self.columns) if self.columns is not None else None
                    yield from self._formed(file.read_row_group(group, wanted, use_threads=self.use_threads))
        except Exception as error:
            name_file(error, path)
            raise
        finally:
            stream.close()

    def _formed(self, table: Any) -> Iterator[Any]:
        if self.form == "rows":
            yield from table.to_pylist()
        elif self.form == "columns":
            yield {name: table.column(name).to_numpy() for name in table.column_names}
        else:
            yield table if self.form == "table" else table.to_pandas()
