"""Batches that grow in the slot of their first samples: the same batches, and nobody's memory is written over."""

import os
import signal
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process.placement import Placement
from tests.depth import across

ROW = 20_000
"""Numbers in a sample: 80 kB, so that 16 of them are worth it."""


class Rows:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return row(index)


def row(index: int) -> Any:
    return np.full(ROW, index, np.float32)


class Kept:
    """A filter that lets through those of a rule."""

    def __init__(self, rule: str) -> None:
        self.rule = rule

    def __call__(self, sample: Any) -> bool:
        number = int(sample[0])
        return {"half": number % 2 == 0, "most": number % 17 != 3, "few": number % 7 == 0, "all": True}[self.rule]


def remember(sample: Any) -> Any:
    MEMORY.append((float(sample[0]), sample))
    assert all((old == number).all() for number, old in MEMORY[-6:])
    return sample


MEMORY: list[Any] = []


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of every ticket whether it grew in the slot of a block."""
    found: list[bool] = []
    give = Placement.give

    def noted(self: Any, ticket: Any) -> Any:
        slot = give(self, ticket)
        found.append(ticket.append_to is not None)
        return slot

    monkeypatch.setattr(Placement, "give", noted)
    return found


def pipe(rule: str, length: int = 320) -> Pipe[Any]:
    return Pipe.of(Rows(length)).shuffle().filter(Kept(rule)).batch(16).collate()


def numbers(batch: Any) -> list[int]:
    assert (batch == batch[:, :1]).all()
    return batch[:, 0].astype(int).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("rule", "workers"), across(["half", "most", "few", "all"], [1, 2, 3]))
def test_batches_are_the_same(homes: list[bool], rule: str, workers: int) -> None:
    with Loader(pipe(rule), seed=5) as loader:
        want = [[numbers(batch) for batch in loader] for _ in range(5)]
    with Loader(pipe(rule), seed=5, workers=workers, start_method="fork") as loader:
        assert [[numbers(batch) for batch in loader] for _ in range(5)] == want
    assert any(homes)


def test_batches_that_are_kept_stay_as_they_are(homes: list[bool]) -> None:
    with Loader(pipe("half", 640), seed=5, workers=2, start_method="fork", memory=16 << 20) as loader:
        kept = [(numbers(batch), batch) for _ in range(3) for batch in loader]
        batches = [batch for _, batch in kept]
        for batch in batches[::2]:
            batch += 1  # writable, and nobody else's
    assert any(homes)
    assert all(numbers(batch - 1 if i % 2 == 0 else batch) == was for i, (was, batch) in enumerate(kept))


def test_an_epoch_that_is_left_gives_everything_back(homes: list[bool]) -> None:
    with Loader(pipe("half"), seed=5, workers=2, start_method="fork") as loader:
        slots = []
        for epoch in range(160):
            loader.set_epoch(epoch)
            for count, batch in enumerate(loader):
                numbers(batch)
                if count == epoch % 5:
                    break
            del batch
            slots.append(loader.stats().slots)
        assert slots[-1] <= 1.2 * max(slots[:80])
        for batch in loader:
            numbers(batch)
    assert any(homes)


def test_killed_workers_change_nothing(homes: list[bool]) -> None:
    with Loader(pipe("most", 640), seed=5) as loader:
        want = [numbers(batch) for batch in loader]
    with Loader(pipe("most", 640), seed=5, workers=2, start_method="fork") as loader:
        got = []
        for count, batch in enumerate(loader):
            got.append(numbers(batch))
            if count % 6 == 3:
                os.kill(loader.worker_pids()[count % 2], signal.SIGKILL)
    assert got == want
    assert any(homes)


def test_samples_that_user_code_looks_at_for_ever_are_not_written_over() -> None:
    watched = Pipe.of(Rows(160)).filter(Kept("half")).map(remember).batch(16).collate()
    with Loader(watched, workers=2, start_method="fork") as loader:
        got = [numbers(batch) for _ in range(3) for batch in loader]
    assert got == 3 * [list(range(start, start + 32, 2)) for start in range(0, 160, 32)]


def test_samples_of_several_arrays_are_collated_as_ever(homes: list[bool]) -> None:
    pairs = Pipe.of(range(320)).map(lambda i: (row(i), i, row(-i))).filter(lambda p: p[1] % 2).batch(16).collate()
    with Loader(pairs, workers=2, start_method="fork") as loader:
        for _ in range(2):
            for step, (first, label, second) in enumerate(loader):
                assert label.tolist() == list(range(32 * step + 1, 32 * step + 33, 2))
                assert numbers(first) == label.tolist()
                assert numbers(-second) == label.tolist()
    assert any(homes)
