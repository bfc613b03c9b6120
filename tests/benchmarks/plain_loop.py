"""A subject without workers: a loop that stacks samples, so that the cases can be tried without any loader."""

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


SUBJECT = PlainLoop()
