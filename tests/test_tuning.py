"""The number of workers is found while an epoch runs, and nobody can tell but by the clock."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.engine import tuning
from headrace.engine.policy import Policy
from headrace.engine.tuning import Tuner
from headrace.errors import BadOption, warn_once

BUSY = 0.9
"""The share of its time that a loop waits which is bound by its loader."""


def settle(rates: dict[int, float], cores: int = 4, waiting: float = BUSY) -> tuple[list[int], int]:
    """The settings that are tried on a machine where each brings this rate, and the one that is kept."""
    tuner = Tuner(Policy(workers=cores, kind="process"), cores)
    tried = [0]
    while not tuner.settled:
        if tuner.learn(rates[tuner.workers], waiting) and not tuner.settled:
            tried.append(tuner.workers)
        assert len(tried) < 10
    return tried, tuner.workers


def test_a_loop_that_hardly_waits_is_left_as_it_is() -> None:
    assert settle({0: 100.0}, waiting=0.01) == ([0], 0)


def test_work_that_scales_gets_a_worker_per_core() -> None:
    assert settle({0: 10, 2: 20, 4: 39, 8: 39}) == ([0, 4, 8, 2], 4)


def test_work_that_sleeps_gets_as_many_as_help() -> None:
    assert settle({0: 10, 4: 40, 8: 80, 16: 160, 32: 165}) == ([0, 4, 8, 16, 32], 16)


def test_work_that_is_cheaper_than_its_transport_stays_here() -> None:
    assert settle({0: 1000, 4: 600}) == ([0, 4], 0)


def test_of_two_that_are_equally_fast_the_smaller_one_is_kept() -> None:
    assert settle({0: 10, 2: 20, 4: 21, 8: 21}) == ([0, 4, 8, 2], 2)


def test_one_core_is_tried_too() -> None:
    assert settle({0: 10, 1: 30, 2: 31}, cores=1) == ([0, 1, 2], 1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SECONDS", 0.0)


def nap(x: int) -> int:
    time.sleep(0.0002)
    return x


def some(x: int) -> list[int]:
    return [x] * (x % 3)


PIPES: dict[str, Any] = {
    "indexed": lambda: Pipe.of(range(1200)).shuffle().map(nap).batch(4),
    "regrouped": lambda: Pipe.of(range(800)).map(nap).flatmap(some).batch(4),
    "streamed": lambda: Pipe.of(iter_of(800)).shuffle(window=64).map(nap).batch(4),
    "with a tail": lambda: Pipe.of(range(800)).map(nap).batch(4).enumerate(),
}


class iter_of:
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


@pytest.mark.parametrize("name", PIPES)
@pytest.mark.usefixtures("quick")
def test_the_stream_is_the_same_while_workers_are_tried(name: str) -> None:
    want = [list(Loader(PIPES[name](), seed=3, epoch=epoch)) for epoch in range(2)]
    with Loader(PIPES[name](), workers="auto", seed=3) as loader:
        assert [list(loader) for _ in range(2)] == want
        assert len(loader.stats().tried) >= 2
        assert loader.stats().workers == loader.policy.workers


@pytest.mark.parametrize("name", PIPES)
def test_an_epoch_may_be_moved_between_any_two_kinds_of_workers(name: str) -> None:
    want = list(Loader(PIPES[name](), seed=3))
    with Loader(PIPES[name](), workers=2, seed=3) as loader:
        reader = iter(loader)
        got = []
        for kinds in range(12):
            got += [next(reader) for _ in range(5)]
            reader.move(Policy() if kinds % 2 == 0 else Policy(workers=1 + kinds % 3, kind="process"))
        assert [*got, *reader] == want


@pytest.mark.usefixtures("quick")
def test_a_snapshot_may_be_taken_at_any_moment_of_it() -> None:
    pipe = PIPES["indexed"]
    want = list(Loader(pipe(), seed=3))
    with Loader(pipe(), workers="auto", seed=3) as loader:
        reader = iter(loader)
        for taken in range(1, 201):
            next(reader)
            if taken % 20 == 0:
                with Loader(pipe(), seed=3) as other:
                    other.load_state_dict(loader.state_dict())
                    assert list(other) == want[taken:]


def test_prefetch_may_be_left_to_the_engine_and_other_words_are_refused() -> None:
    with Loader(Pipe.of(range(8)).batch(2), workers=1, prefetch="auto") as loader:
        assert len(list(loader)) == 4
        assert loader.stats().prefetch >= 1
    with pytest.raises(BadOption, match="workers must be a whole number"):
        Loader(Pipe.of(range(8)), workers="many")  # type: ignore[arg-type]


def test_far_more_worker_processes_than_cores_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tuning, "available", lambda: 2)
    warn_once.cache_clear()
    pipe = Pipe.of(range(8))
    options: list[dict[str, Any]] = [{}, {"workers": 2 * tuning.USUAL}, {"workers": 32, "kind": "thread"}]
    for few in options:
        Loader(pipe, **few).close()
    assert not caplog.messages
    for _ in range(2):
        Loader(pipe, workers=32).close()
    assert [text.partition(":")[0] for text in caplog.messages] == ["workers=32 are 32 processes on 2 cores"]


def test_the_lab_compares_it_with_fixed_numbers() -> None:
    root = Path(__file__).resolve().parents[1]
    lab = [sys.executable, str(root / "examples/labs/autotune.py"), "--seconds", "0.3", "--one", "is trivial", "auto"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(lab, capture_output=True, text=True, env=environment, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    rate, workers = done.stdout.split()
    assert float(rate) > 0
    assert int(workers) >= 0
