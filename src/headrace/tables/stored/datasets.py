"""Tables that others keep on disk: pyarrow datasets and HF datasets, as units of rows.

pyarrow Dataset    its fragments; of Parquet files their row groups. Columns in the names of folders are included.
HF Dataset         stretches of its memory-mapped table, if its rows are plain values; otherwise it is read by row
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.tables.convert.from_arrow import takeable_columns
from headrace.tables.packages import ds, pa
from headrace.tables.source import FromTable, Tabular
from headrace.tables.stored.files import counted, scanned
from headrace.tables.stored.footers import batches_summary, misses, parquet_summary
from headrace.tables.stored.source import MEMORY, StoredTable, from_units

STRETCH = 1 << 16
"""Rows of a memory-mapped table that are read together."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fragments(StoredTable):
    """The units of a pyarrow Dataset."""

    format = "dataset"
    pieces: tuple[Any, ...]

    def count_in(self, unit: int, expression: object) -> int:
        piece = self.pieces[unit]
        if hasattr(piece, "row_groups"):
            return counted(piece, expression, self.schema(), int(self.rows[unit]))
        return StoredTable.count_in(self, unit, expression)

    def read(self, unit: int, columns: list[str], expression: Any, memory: int) -> Iterator[Any]:
        piece = self.pieces[unit]
        if expression is None or hasattr(piece, "row_groups"):
            return scanned(piece, columns, expression, self.schema())
        return StoredTable.read(self, unit, columns, expression, memory)

    def table(self, unit: int, columns: list[str] | None) -> Any:
        schema = self.schema()
        return pa.Table.from_batches(scanned(self.pieces[unit], schema.names, None, schema), schema)

    def describe(self) -> str:
        return f"{len(self.pieces)} fragments"


def from_dataset(dataset: Any) -> Tabular:
    """A pyarrow Dataset."""
    schema = dataset.schema.remove_metadata()
    pieces: list[Any] = []
    rows: list[int] = []
    masked: set[str] = set()
    sizes: Counter[str] = Counter()
    weight = 0
    try:
        fragments = list(dataset.get_fragments())
    except (pa.ArrowInvalid, ValueError) as error:
        raise BadOption(
            f"this dataset has no fragments ({error}): give the one without the filter, and use filter()"
        ) from None
    for fragment in fragments:
        if hasattr(fragment, "split_by_row_group"):
            summary = parquet_summary(fragment.metadata, fragment.physical_schema)
            pieces += (parts := fragment.split_by_row_group())
            rows += [sum(group.num_rows for group in part.row_groups) for part in parts]
            masked |= {name for name in schema.names if name not in summary.schema.names and not _known(fragment, name)}
        else:
            summary = batches_summary(schema, scanned(fragment, schema.names, None, schema))
            pieces.append(fragment)
            rows.append(sum(summary.rows))
        masked |= summary.masked
        weight += summary.weight
        sizes.update(summary.sizes)
    return from_units(
        Fragments(
            pieces=tuple(pieces),
            rows=np.array(rows, np.int64),
            masked=frozenset(masked),
            sizes={name: sizes.get(name, 16) for name in schema.names},
            packed=schema.serialize().to_pybytes(),
            weight=weight,
        )
    )


def _known(fragment: Any, name: str) -> bool:
    """Whether the folder of a fragment gives this column a value; in `__HIVE_DEFAULT_PARTITION__` it is missing."""
    return ds.get_partition_keys(fragment.partition_expression).get(name) is not None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MappedTable(StoredTable):
    """Stretches of an HF Dataset's table. It travels as the Dataset does: by the names of its files."""

    format = "datasets"
    dataset: Any

    def table(self, unit: int, columns: list[str] | None) -> Any:
        return takeable_columns(self.dataset.data.table.slice(unit * int(self.rows[0]), int(self.rows[unit])))

    def describe(self) -> str:
        return "a memory-mapped table"


def from_hf(dataset: object) -> Tabular | None:
    """An HF Dataset, or None if its rows are more than what is stored: decoded, formatted or chosen by an index."""
    kind: Any = sys.modules["datasets"]
    if not isinstance(dataset, kind.Dataset) or dataset.format["type"] is not None or _decodes(dataset.features):
        return None
    shown = dataset.column_names if dataset.format["output_all_columns"] else dataset.format["columns"]
    names = [name for name in dataset.column_names if name in shown]
    table = dataset.data.table
    if table.nbytes <= MEMORY:
        from headrace.tables.convert.frames import table_of

        whole = table_of(table.select(names))
        assert whole is not None
        if dataset._indices is None:
            return FromTable(whole)
        return FromTable(whole).only(dataset._indices.column(0).to_numpy().astype(np.int64))
    if dataset._indices is not None:
        return None
    starts = range(0, table.num_rows, STRETCH)
    rows = np.array([min(STRETCH, table.num_rows - start) for start in starts], np.int64)
    stored = MappedTable(
        dataset=dataset,
        rows=rows,
        masked=frozenset(name for name in names if any(map(misses, table.column(name).chunks))),
        sizes={name: table.column(name).nbytes for name in table.column_names},
        packed=table.schema.remove_metadata().serialize().to_pybytes(),
    )
    return from_units(stored).select(names)


def _decodes(feature: object) -> bool:
    """Whether something in a feature is decoded on access: images, audio and the like."""
    if isinstance(feature, dict):
        return any(_decodes(part) for part in feature.values())
    if hasattr(feature, "decode_example"):
        return True
    if isinstance(feature, list | tuple):
        return any(_decodes(part) for part in feature)
    return _decodes(feature.feature) if hasattr(feature, "feature") else False
