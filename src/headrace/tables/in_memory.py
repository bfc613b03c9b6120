"""Frames in memory as sources: `Pipe.of` asks here whether what it is given is a frame.

The module of the object's type answers that, so that nothing, not even numpy, is imported for what is not a frame.
"""

import sys
from collections.abc import Mapping
from typing import Any

from headrace.op import Source

PACKAGES = frozenset({"numpy", "pandas", "polars", "pyarrow", "datasets"})
ARRAYS = frozenset({"numpy", "torch"})


def from_frame(data: object) -> Source[Any] | None:
    """A source over a frame, or None if the object is not a frame."""
    if not _may_be_frame(data):
        return None
    if _package(data) == "datasets":
        from headrace.sources.huggingface import HuggingFaceStream, is_stream
        from headrace.tables.stored.datasets import from_hf

        return HuggingFaceStream(data) if is_stream(data) else from_hf(data)
    if _is_dataset(data):
        from headrace.tables.stored.datasets import from_dataset

        return from_dataset(data)
    from headrace.tables.convert.frames import table_of
    from headrace.tables.source import FromTable

    table = table_of(data)
    return None if table is None else FromTable(table)


def _may_be_frame(data: object) -> bool:
    if isinstance(data, Mapping):
        return bool(data) and all(_package(value) in ARRAYS for value in data.values())
    return _package(data) in PACKAGES or hasattr(type(data), "__arrow_c_stream__")


def _is_dataset(data: object) -> bool:
    dataset: Any = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(data, dataset.Dataset) and not isinstance(data, dataset.InMemoryDataset)


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]
