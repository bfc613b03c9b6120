"""Arrays out of samples, for loaders that leave this to their users and have no torch in it."""

from typing import Any

import numpy as np

from benchmarks.case import Dataset


def stack(samples: list[Any]) -> Any:
    first = samples[0]
    if isinstance(first, dict):
        return {name: np.stack([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple):
        return tuple(stack(list(column)) for column in zip(*samples, strict=True))
    if isinstance(first, np.ndarray):
        return np.stack(samples)
    return np.asarray(samples)


class Fetch:
    """A batch of a data set, by its positions."""

    def __init__(self, dataset: Dataset, collate: Any = stack) -> None:
        self.dataset = dataset
        self.collate = collate

    def __call__(self, positions: Any) -> Any:
        return self.collate([self.dataset[int(position)] for position in positions])


class Positions:
    """The positions of one epoch, batch by batch, as often as it is iterated."""

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.size = size

    def __iter__(self) -> Any:
        for start in range(0, self.length, self.size):
            yield range(start, min(start + self.size, self.length))

    def __len__(self) -> int:
        return -(-self.length // self.size)
