"""A loader or a pipe inside an op of another one: what it made is the op's to keep, and the op goes on as if alone."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import headrace
from headrace import DataLoader, Loader, Pipe
from headrace.datapipes.iter import IterableWrapper
from tests.depth import across

ROWS, TABLE, LATER = 1200, 50, 400


def row(number: int) -> Any:
    return np.full(100, number, np.int64)


def by_loader() -> Any:
    return next(iter(Loader(Pipe.of(range(TABLE)).map(row).batch(TABLE).collate())))


def by_threads() -> Any:
    with Loader(Pipe.of(range(TABLE)).map(row).batch(TABLE).collate(), workers=1, kind="thread") as loader:
        return next(iter(loader))


def by_pipe() -> Any:
    return next(iter(Pipe.of(range(TABLE)).map(row).batch(TABLE).collate()))


def by_tail() -> Any:
    return next(iter(Loader(Pipe.of(range(TABLE)).map(row).batch(TABLE).collate().shuffle(window=2).cycle(2))))


def by_frame() -> Any:
    return next(iter(Loader(Pipe.of({"x": np.stack([row(n) for n in range(TABLE)])}).batch(TABLE))))["x"]


def by_datapipe() -> Any:
    return np.asarray(next(iter(IterableWrapper(range(TABLE)).map(row).batch(TABLE).collate(np.stack))))


def by_door() -> Any:
    return next(iter(DataLoader([row(n) for n in range(TABLE)], batch_size=TABLE))).numpy()


INNER = [by_loader, by_threads, by_pipe, by_tail, by_frame, by_datapipe, by_door]


class Keeping:
    """Keeps what an inner loader made, once memory on the way to the consumer is large enough to hold it."""

    def __init__(self, inner: Callable[[], Any], draws: bool) -> None:
        self.inner = inner
        self.draws = draws

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        if index == LATER or not hasattr(self, "table"):
            self.table = self.inner()
        kept = self.table[index % TABLE]
        drawn = headrace.rng().integers(1 << 30) if self.draws else 0
        return np.array([kept.min(), kept.max(), index % TABLE, drawn]), np.full(5000, index)


def opened(dataset: Any, outer: str, workers: int) -> Iterator[Any]:
    if outer == "DataLoader":
        return iter(DataLoader(dataset, batch_size=20, num_workers=workers))
    return iter(Loader(Pipe.of(range(ROWS)).map(dataset.__getitem__).batch(20).collate(), workers=workers))


@pytest.mark.parametrize(("inner", "outer"), across(INNER, ["Loader", "DataLoader"]))
def test_what_an_inner_loader_made_is_kept_and_random_values_stay(inner: Callable[[], Any], outer: str) -> None:
    load = partial(opened, Keeping(inner, draws=outer == "Loader"), outer)
    drawn: dict[int, list[Any]] = {}
    for workers in (1, 0):
        facts = np.concatenate([np.asarray(batch[0]) for batch in load(workers)])
        assert facts[:, 0].tolist() == facts[:, 1].tolist() == facts[:, 2].tolist()
        drawn[workers] = facts[:, 3].tolist()
    assert drawn[0] == drawn[1]
    assert outer == "DataLoader" or len(set(drawn[0])) == ROWS
