"""Law 4: kill any worker at any time: law 2 still holds. (Kills at every message are in tests/faults.)"""

import os
import signal
from contextlib import suppress
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import PoisonSample, WorkerDied
from tests.laws.pipes import Numbers, drawn, odd, read, shown, some, stream

PIPES = {
    "indexed": Pipe.of(Numbers(300)).shuffle().map(drawn).batch(4),
    "filtered": Pipe.of(Numbers(300)).map(drawn).filter(odd).batch(4),
    "spread": Pipe.of(Numbers(300)).flatmap(some).map(drawn).batch(4),
    "streamed": Pipe.of(stream(300)).shuffle(window=30).sharding_filter().map(drawn).batch(4),
    "reservoir": Pipe.of(stream(300)).shuffle(buffer_size=30).sharding_filter().map(drawn).batch(4),
}


def worker_pids(loader: Loader[Any]) -> list[int]:
    return [w.started.pid for workers in loader._pool.all() for w in workers._workers]


@pytest.mark.parametrize("method", ["fork", "server"])
@pytest.mark.parametrize("name", list(PIPES))
def test_killed_workers_do_not_change_the_stream(name: str, method: Any) -> None:
    want = read(PIPES[name])
    got = []
    with Loader(PIPES[name], seed=3, workers=2, start_method=method) as loader:
        for i, batch in enumerate(loader):
            got.append(shown(batch))
            if i % 7 == 2:
                with suppress(ProcessLookupError):  # (its last death may not have been noticed yet)
                    os.kill(worker_pids(loader)[i % 2], signal.SIGKILL)
        assert loader.stats().retries > 3
    assert got == want


def test_without_restarts_the_first_death_is_an_error_that_says_how() -> None:
    with Loader(PIPES["indexed"], workers=2, restarts=0, start_method="fork") as loader:
        batches = iter(loader)
        next(batches)
        for pid in worker_pids(loader):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"SIGKILL.*0 restarts"):
            list(batches)


def deadly(x: int) -> int:
    if x == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_sample_that_kills_twice_is_named() -> None:
    pipe = Pipe.of(Numbers(40)).map(deadly).batch(4)
    with pytest.raises(PoisonSample, match=r"position 13.*SIGKILL"), Loader(pipe, workers=2) as loader:
        list(loader)


def test_a_sample_that_kills_twice_can_be_left_out() -> None:
    pipe = Pipe.of(Numbers(40)).map(deadly).batch(4)
    with Loader(pipe, workers=2, on_poison="skip") as loader:
        batches = list(loader)
    assert [len(b) for b in batches] == [4, 4, 4, 3, 4, 4, 4, 4, 4, 4]
    assert [x for b in batches for x in b] == [x for x in range(40) if x != 13]
