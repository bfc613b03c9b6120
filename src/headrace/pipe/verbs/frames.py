"""Verbs for frames: columns in and out, and work on columns.

Select, rename and filter by expression go down to the source wherever that changes nothing but the cost: what is not
asked for is not read.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from headrace.errors import BadOption, BadPipe
from headrace.ops.shape.batch import Batch
from headrace.pipe.verbs.growing import Verbs, grow, start

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe
    from headrace.tables.source import Tabular
    from headrace.tables.stored.manifest import Manifest

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class FrameVerbs(Verbs):
    """What a Pipe can do with columns."""

    __slots__ = ()

    @property
    def columnar(self) -> bool:
        """Samples are rows of a table, so that `batch` gathers whole columns."""
        return self.op.columnar(tuple(i.columnar for i in self.inputs))

    # --- files of columns -------------------------------------------------------------------------------------------

    @staticmethod
    def parquet(
        paths: Paths,
        columns: Sequence[str] | None = None,
        *,
        filter: object = None,
        memory: int | None = None,
        drift: Literal["refuse", "common", "fill"] = "refuse",
        hive: bool | None = None,
        manifest: "Manifest | None" = None,
    ) -> "Pipe[Any]":
        """Every row of these Parquet files, by random access; row groups in memory take up to `memory` bytes.

        `drift` says what becomes of columns that not all files have, `hive` whether folders called `name=value` are
        columns (None: below folders that are given). `manifest` is a file, shared by all ranks, that keeps what footers
        say: one rank looks into the files, others and later starts open the manifest alone.
        Ranks that share no file system give the store of torch.distributed instead.
        """
        return _files("parquet", paths, columns, filter, memory, drift, hive, manifest)

    @staticmethod
    def arrow(
        paths: Paths,
        columns: Sequence[str] | None = None,
        *,
        filter: object = None,
        memory: int | None = None,
        drift: Literal["refuse", "common", "fill"] = "refuse",
        hive: bool | None = None,
        manifest: "Manifest | None" = None,
    ) -> "Pipe[Any]":
        """Every row of these Arrow (IPC, Feather) files, by random access; the options are those of `parquet`."""
        return _files("arrow", paths, columns, filter, memory, drift, hive, manifest)

    # --- columns ----------------------------------------------------------------------------------------------------

    def select(self, *names: str) -> "Pipe[Any]":
        """Only these columns, of rows or frames."""
        from headrace.tables.ops.select import Select

        if not names or not all(isinstance(name, str) for name in names):
            raise BadOption("select() takes names of columns: select('age', 'income')")
        pushed = _pushed(self, lambda source: source.select(names), _KEEP_COLUMNS)
        return grow(self, Select(names)) if pushed is None else pushed

    def rename(self, new: Mapping[str, str] | None = None, /, **more: str) -> "Pipe[Any]":
        """Columns under new names: rename({'old': 'new'}) or rename(old='new')."""
        from headrace.tables.ops.select import Rename

        names = {**(new or {}), **more}
        if not names or not all(isinstance(n, str) for pair in names.items() for n in pair):
            raise BadOption("rename() takes old and new names: rename({'old': 'new'})")
        pushed = _pushed(self, lambda source: source.rename(names), _KEEP_COLUMNS)
        return grow(self, Rename(tuple(names.items()))) if pushed is None else pushed

    def dataframe(
        self, size: int = 1000, *, as_: str = "pandas", columns: list[str] | None = None, drop_last: bool = False
    ) -> "Pipe[Any]":
        """Frames of `size` rows, made of dicts, or of tuples with the names `columns`."""
        from headrace.tables.ops.frame import ToFrame

        if self.columnar:
            narrowed = self if columns is None else self.select(*columns)
            return narrowed._column_batch(size, drop_last, as_)
        frames = ToFrame(as_ if as_ != "jax" else "numpy", tuple(columns) if columns else None)
        made = grow(grow(self, Batch(size, drop_last)), frames)
        return _jax(made) if as_ == "jax" else made

    def rows(self) -> "Pipe[dict[str, Any]]":
        """The rows of frames, tables and dicts of arrays, one by one, as dicts."""
        from headrace.tables.ops.frame import FrameRows

        return grow(self, FrameRows())

    # --- what verbs of `Pipe` hand over to --------------------------------------------------------------------------

    def _column_batch(self, size: int, drop_last: bool, as_: str | None) -> "Pipe[Any]":
        from headrace.tables.convert.forms import check_arrow, check_torch
        from headrace.tables.ops.batch import AsColumns, ColumnBatch

        if not self.columnar:
            raise BadOption(
                f"batch(as_={as_!r}) needs rows of a frame that nothing has taken apart; for single objects use "
                f"dataframe(size, as_={as_!r})"
            )
        alike = _alike_parts(self)
        if (sources := _sources(alike)) and as_ in ("arrow", "polars"):
            check_arrow(sources[0].template(), as_)
        if sources and as_ == "torch":
            check_torch(sources[0].template())
        made = grow(grow(alike, ColumnBatch(size, drop_last)), AsColumns(as_ or "numpy"))
        return _jax(made) if as_ == "jax" else made

    def _map_rows(self, fn: Callable[[Any], Any], as_: str) -> "Pipe[Any]":
        from headrace.tables.ops.map import MapRows

        if not self.columnar:
            raise BadOption(
                "map(batched=True) needs rows of a frame that nothing has taken apart; for other samples use "
                "dataframe(size).map(fn).rows(), or batch(size).map(fn)"
            )
        try:
            return grow(_alike_parts(self), MapRows(fn, as_))
        except BadPipe:  # whose function may make them alike, row by row
            return grow(self, MapRows(fn, as_))

    def _filter_rows(self, expression: object) -> "Pipe[Any]":
        from headrace.tables.ops.select import Where

        pushed = _pushed(self, lambda source: source.where(expression), _KEEP_ROWS)
        return grow(self, Where(expression)) if pushed is None else pushed


def _files(
    format: str,
    paths: Paths,
    columns: Sequence[str] | None,
    filter: object,
    memory: int | None,
    drift: str,
    hive: bool | None,
    manifest: "Manifest | None",
) -> "Pipe[Any]":
    from headrace.tables.stored.data_files import data_files
    from headrace.tables.stored.files import read_footer
    from headrace.tables.stored.source import from_units

    source = from_units(read_footer(format, data_files(paths, hive), columns, drift, manifest), memory)
    if filter is not None:
        source = source.where(filter)
    return start(source if columns is None else source.select(columns))


def _jax(pipe: "Pipe[Any]") -> "Pipe[Any]":
    from headrace.tables.ops.batch import AsJax

    return pipe.then(AsJax())


_KEEP_ROWS = ("Shuffle", "Sharding", "Cycle", "Concat")
"""Ops for which it is the same whether rows are left out before them or after them."""
_KEEP_COLUMNS = (*_KEEP_ROWS, "Header")
"""The same for columns: behind these ops every column of the source is there, as it was."""


def _is_one_of(op: object, names: tuple[str, ...]) -> bool:
    """Whether an op is one of ours with such a name; their modules are not imported to find out."""
    module = type(op).__module__
    return type(op).__name__ in names and module.startswith(("headrace.ops.", "headrace.tables.ops."))


def _pushed(pipe: Verbs, narrow: Callable[[Any], Any], through: tuple[str, ...]) -> "Pipe[Any] | None":
    """The same pipe over narrowed sources, or None if something stands between that must see what would be left out."""
    from headrace.pipe.graph import Pipe
    from headrace.tables.source import Tabular

    if isinstance(pipe.op, Tabular):
        return Pipe(narrow(pipe.op))
    if not _is_one_of(pipe.op, through):
        return None
    below = [_pushed(i, narrow, through) for i in pipe.inputs]
    return None if None in below else Pipe(pipe.op, *cast("list[Pipe[Any]]", below))


def _sources(pipe: Verbs) -> "list[Tabular]":
    """The tables that a pipe takes its columns from, as far as that is known before it runs."""
    from headrace.tables.source import Tabular

    if isinstance(pipe.op, Tabular):
        return [pipe.op]
    return [s for i in pipe.inputs for s in _sources(i)] if _is_one_of(pipe.op, _KEEP_COLUMNS) else []


def _alike_parts(pipe: Verbs) -> Verbs:
    """The pipe; refuses a concat() of frames whose columns differ, where that is known before it runs.

    Without this, batches of one part would silently have other types than batches of the next. If values are missing in
    only some of the parts, they may be missing in all: batches are masked arrays either always or never.
    """
    from headrace.tables.merge import check_alike, gaps

    if len(sources := _sources(pipe)) < 2:
        return pipe
    templates = [source.template() for source in sources]
    check_alike(templates)
    found = gaps(templates)
    return (_pushed(pipe, lambda source: source.with_gaps(found), _KEEP_COLUMNS) if found else None) or pipe


def is_expression(value: object) -> bool:
    """Whether a value is a pyarrow expression; pyarrow is not imported to find out."""
    return type(value).__module__.startswith("pyarrow") and type(value).__name__ == "Expression"
