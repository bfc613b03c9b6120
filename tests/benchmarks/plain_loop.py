"""A subject without workers: a loop that stacks samples, so that the cases can be tried without any loader."""

import csv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from benchmarks.case import Dataset, Epochs, Start


def stack(samples: list[Any]) -> Any:
    first = samples[0]
    if isinstance(first, dict):
        return {name: np.stack([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple):
        return tuple(np.asarray(column) for column in zip(*samples, strict=True))
    return np.asarray(samples)


class Loop:
    def __init__(self, samples: Callable[[], Iterator[Any]], size: int) -> None:
        self.samples = samples
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        group: list[Any] = []
        for sample in self.samples():
            group.append(sample)
            if len(group) == self.size:
                yield stack(group)
                group = []


class PlainLoop:
    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return nullcontext(Loop(lambda: (dataset[index] for index in range(len(dataset))), size))

    def filtered(
        self, dataset: Dataset, keep: Callable[[Any], bool], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        samples = lambda: (dataset[index] for index in range(len(dataset)) if keep(dataset[index]))  # noqa: E731
        return nullcontext(Loop(samples, size))

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return nullcontext(_Slices(data, size))

    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Epochs]:
        import pyarrow.parquet as pq

        table = pq.read_table(paths)
        return nullcontext(_Slices({name: table.column(name).to_numpy() for name in table.column_names}, size))

    def csv(self, paths: list[str], parse: Any, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        def samples() -> Iterator[Any]:
            for path in paths:
                with open(path, newline="", encoding="utf-8") as file:
                    yield from map(parse, csv.reader(file))

        return nullcontext(Loop(samples, size))


class _Slices:
    def __init__(self, data: Any, size: int) -> None:
        self.data = data
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.data["key"]), self.size):
            yield {"key": np.asarray(self.data["key"])[start : start + self.size]}


SUBJECT = PlainLoop()
