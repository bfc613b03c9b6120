"""Data sets as files: what is written for a loader that reads only its own format, and how a sample comes back.

A stored value is a number, bytes, an array, or a tuple of these. Arrays travel as bytes where the format has none.
"""

import atexit
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Dataset


class Files:
    """Folders with data sets in a loader's own format, each written once and kept until the process ends."""

    def __init__(self, write: "Callable[[str, Storage], None]") -> None:
        self.write = write
        atexit.register(self.close)
        self.kept: dict[int, tuple[Dataset, Storage, tempfile.TemporaryDirectory[str]]] = {}

    def of(self, dataset: Dataset) -> "tuple[str, Storage]":
        if id(dataset) not in self.kept:
            storage, folder = Storage(dataset), tempfile.TemporaryDirectory(prefix="headrace-bench-")
            self.write(folder.name, storage)
            self.kept[id(dataset)] = dataset, storage, folder
        _, storage, folder = self.kept[id(dataset)]
        return folder.name, storage

    def close(self) -> None:
        for *_, folder in self.kept.values():
            folder.cleanup()
        self.kept.clear()


def prepare(subject: Any, dataset: Dataset) -> None:
    """Let a subject that reads files write them before the clock runs."""
    files: Files | None = getattr(subject, "files", None)
    if files is not None:
        files.of(dataset)


class Storage:
    """Fields of one sample, `x0`, `x1`, ...: to write it, and to make the sample again in a worker."""

    def __init__(self, dataset: Dataset) -> None:
        self._stored = getattr(dataset, "stored", None)
        self.loaded = getattr(dataset, "loaded", None)
        self.dataset: Dataset | None = dataset
        self.length = len(dataset)
        first = self._value(0)
        self.many = isinstance(first, tuple)
        self.shapes = [
            (value.dtype.str, value.shape) if isinstance(value, np.ndarray) else None for value in self._parts(first)
        ]

    def __len__(self) -> int:
        return self.length

    def fields(self, index: int) -> dict[str, Any]:
        return {
            f"x{number}": value.tobytes() if isinstance(value, np.ndarray) else plain(value)
            for number, value in enumerate(self._parts(self._value(index)))
        }

    def sample(self, fields: Any) -> Any:
        parts = tuple(
            fields[f"x{number}"] if shape is None else array(fields[f"x{number}"], shape)
            for number, shape in enumerate(self.shapes)
        )
        value = parts if self.many else parts[0]
        return value if self.loaded is None else self.loaded(value)

    def __getstate__(self) -> dict[str, Any]:
        """Workers read files: the data set itself stays where it is, and what makes the sample goes along."""
        return {**self.__dict__, "dataset": None, "_stored": None}

    def _value(self, index: int) -> Any:
        if self._stored is not None:
            return self._stored(index)
        if self.dataset is None:
            raise RuntimeError("a storage in a worker can only read")
        return self.dataset[index]

    def _parts(self, value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else (value,)


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def array(content: bytes, shape: Any) -> Any:
    dtype, dimensions = shape
    return np.frombuffer(bytearray(content), dtype).reshape(dimensions)
