"""One pool for several consumers, as real processes: own shares, or the same stream; deaths, skew, resuming."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, SharedPool, World
from tests.conftest import SRC
from tests.depth import depth
from tests.laws.pipes import Numbers
from tests.workers.shared_consumer import PIPES, image, told

ROOT = SRC.parent
FINITE = [name for name in PIPES if name != "endless"]


class Consumers:
    """Consumer processes of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, pool: SharedPool, name: str, **options: int) -> "subprocess.Popen[bytes]":
        out = self.folder / str(len(self.running))
        for epoch in range(options.get("epochs", 1)):
            os.mkfifo(f"{out}.go{epoch}")
        command = [sys.executable, "-m", "tests.workers.shared_consumer", str(pool), name, str(out)]
        started = subprocess.Popen(
            [*command, *(f"{key}={value}" for key, value in options.items())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(SRC)},
        )
        self.running.append(started)
        return started

    def got(self, number: int) -> list[str]:
        return (self.folder / str(number)).read_text().splitlines()

    def end(self, *numbers: int) -> None:
        for number in numbers or range(len(self.running)):
            assert self.running[number].wait(50) == 0

    def go(self, number: int, epoch: int = 0) -> None:
        """Wait until the consumer is where it pauses, and let it go on."""
        (self.folder / f"{number}.go{epoch}").write_text("")


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[Consumers]:
    made = Consumers(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.wait()


def alone(name: str, epochs: int = 1, **how: Any) -> list[str]:
    with Loader(PIPES[name], seed=3, **how) as loader:
        return [told(batch) for _ in range(epochs) for batch in loader]


# --- one consumer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [False, True])
def test_the_stream_is_the_same_as_without_a_pool(same: bool) -> None:
    # One pipe after the other: a pool that nobody uses takes the next.
    with SharedPool(workers=2, same=same) as pool:
        for name in FINITE:
            assert alone(name, 2, pool=pool) == alone(name, 2), name


def test_snapshots_go_to_and_from_a_pool() -> None:
    with SharedPool(workers=2) as pool:
        for name in ("filtered", "streamed"):
            whole = alone(name)
            for first, then in (({"pool": pool}, {}), ({}, {"pool": pool})):
                with Loader(PIPES[name], seed=3, **first) as loader:
                    batches = iter(loader)
                    got = [told(next(batches)) for _ in range(5)]
                    state = loader.state_dict()
                with Loader(PIPES[name], seed=3, **then) as loader:
                    loader.load_state_dict(state)
                    assert got + [told(batch) for batch in loader] == whole


def test_what_a_closed_loader_held_is_free(no_new_fds: Any) -> None:
    with SharedPool(workers=2) as pool:
        alone("images", pool=pool)
        no_new_fds()
        with Loader(PIPES["images"], seed=3, pool=pool) as loader:
            held = [batch for _, batch in zip(range(20), loader, strict=False)]
            assert pool.stats()["slots"] >= 20
        assert pool.stats()["slots"] == 0
        assert [told(batch) for batch in held] == alone("images")[:20]
        del held


# --- several consumers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", depth(["streamed"], ["indexed", "images", "streamed", "only a stream"]))
def test_each_consumer_gets_its_own_share(name: str, consumers: Consumers) -> None:
    ranks = depth(2, 3)
    with SharedPool(workers=2, consumers=ranks) as pool:
        for rank in range(ranks):
            consumers.start(pool, name, rank=rank, ranks=ranks, epochs=2)
        consumers.end()
        assert pool.stats()["slots"] == pool.stats()["cache"] == 0
    for rank in range(ranks):
        assert consumers.got(rank) == alone(name, 2, world=World(rank=rank, ranks=ranks))


@pytest.mark.parametrize(
    "name", depth(["filtered images"], ["images", "filtered images", "assembled", "streamed", "only a stream"])
)
def test_all_consumers_get_the_same_stream_and_every_ticket_is_run_once(name: str, consumers: Consumers) -> None:
    with SharedPool(workers=2, consumers=3, same=True) as pool:
        for _ in range(3):
            consumers.start(pool, name, epochs=2)
        consumers.end()
        counted = pool.stats()
    want = alone(name, 2)
    assert [consumers.got(k) == want for k in range(3)] == [True] * 3
    # (After the end of a stream there may be one more ticket under way.)
    assert 2 * counted["run"] - 8 <= counted["shared"] <= 2 * counted["run"]
    assert counted["slots"] == counted["cache"] == 0


def test_nobody_runs_far_ahead_of_the_slowest(consumers: Consumers) -> None:
    with SharedPool(workers=2, consumers=2, same=True, skew=6) as pool:
        consumers.start(pool, "images", pause=10)
        consumers.start(pool, "images")
        while pool.stats().get("cache", 0) < 6:  # bounded by the test's deadline
            assert consumers.running[1].poll() is None
        # The slow one has asked for as much as its window holds, the fast one is six tickets ahead of that.
        assert len(consumers.got(1)) <= 10 + 8 * 2 + 6
        consumers.go(0)
        consumers.end()
        assert pool.stats()["fullest"] <= 6
    assert consumers.got(0) == consumers.got(1) == alone("images")


@pytest.mark.parametrize("how", depth([{"die": 7, "copy": 1}], [{"die": 7, "copy": 1}, {"stop": 7}]))
def test_a_consumer_that_dies_or_stops_does_not_hold_the_others(how: dict[str, int], consumers: Consumers) -> None:
    with SharedPool(workers=2, consumers=3, same=True, skew=4) as pool:
        gone = consumers.start(pool, "filtered images", **how)
        for _ in range(2):
            consumers.start(pool, "filtered images", epochs=2)
        assert gone.wait(50) == (-signal.SIGKILL if "die" in how else 0)
        consumers.end(1, 2)
        counted = pool.stats()
    if "copy" in how:
        consumers.go(0)  # ends the forked copy, which has had the line to the pool open all the time
    assert counted["slots"] == counted["cache"] == counted["consumers"] == 0
    assert [consumers.got(k) == alone("filtered images", 2) for k in (1, 2)] == [True] * 2
    assert consumers.got(0) == alone("filtered images")[:7]


def test_a_killed_worker_changes_nothing(consumers: Consumers) -> None:
    with SharedPool(workers=2, consumers=2, same=True) as pool:
        for _ in range(2):
            consumers.start(pool, "filtered", epochs=2, pause=3)
        for epoch in range(2):
            consumers.go(0, epoch)
            os.kill(pool.stats()["pids"][epoch], signal.SIGKILL)
            consumers.go(1, epoch)
        consumers.end()
        assert pool.stats()["restarts"] == 2
    assert [consumers.got(k) == alone("filtered", 2) for k in range(2)] == [True] * 2


def test_a_consumer_that_never_comes_is_not_waited_for_for_ever() -> None:
    with SharedPool(workers=1, consumers=2, same=True, skew=2, wait=0.5) as pool:
        assert alone("images", pool=pool) == alone("images")
        assert pool.stats()["cache"] == 0


# --- streams ----------------------------------------------------------------------------------------------------------


def shifted(array: Any) -> Any:
    array += 1000  # in the block that all consumers read from
    return array


def rows(size: int = 400) -> Any:
    return lambda: (image(i) for i in range(size))


WRITTEN = Pipe.of(rows()).sharding_filter().map(shifted).batch(4).collate()


def test_a_consumer_that_comes_late_to_a_stream_gets_all_of_it() -> None:
    with Loader(WRITTEN) as loader:
        want = [told(batch) for batch in loader]
    with SharedPool(workers=2, same=True, skew=2) as pool, Loader(WRITTEN, pool=pool) as early:
        batches = iter(early)
        got = [told(next(batches)) for _ in range(30)]
        with Loader(WRITTEN, pool=pool) as late:
            assert [told(batch) for batch in late] == want
        assert got + [told(batch) for batch in batches] == want


@pytest.mark.parametrize("strands", depth([2], [1, 2]))
def test_ranks_that_go_on_from_different_places_do_not_wait_for_each_other(strands: int) -> None:
    worlds = [World(rank=rank, ranks=2) for rank in range(2)]
    whole, states, got = [], [], []
    for world, stop in zip(worlds, (5, 13), strict=True):
        with Loader(WRITTEN, world=world, strands=strands) as loader:
            whole.append([told(batch) for batch in loader])
            loader.set_epoch(0)
            batches = iter(loader)
            got.append([told(next(batches)) for _ in range(stop)])
            states.append(loader.state_dict())
    step = threading.Barrier(2)

    def train(rank: int) -> None:
        with Loader(WRITTEN, world=worlds[rank], strands=strands, pool=pool) as loader:
            loader.load_state_dict(states[rank])
            for batch in loader:
                got[rank].append(told(batch))
                with contextlib.suppress(threading.BrokenBarrierError):
                    step.wait(40)
        step.abort()

    with SharedPool(workers=2, consumers=2, skew=2) as pool:
        ranks = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    assert got == whole


def test_one_that_goes_on_and_others_that_begin_do_not_wait_for_each_other() -> None:
    whole = alone("filtered")
    with Loader(PIPES["filtered"], seed=3) as loader:
        batches = iter(loader)
        before = [told(next(batches)) for _ in range(15)]
        state = loader.state_dict()
    got: dict[int, list[str]] = {}

    def consume(number: int) -> None:
        with Loader(PIPES["filtered"], seed=3, pool=pool) as loader:
            if number == 0:
                loader.load_state_dict(state)
            got[number] = [told(batch) for batch in loader]

    with SharedPool(workers=1, consumers=3, same=True, skew=2) as pool:
        threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (before + got[0], got[1], got[2]) == (whole, whole, whole)


def test_the_same_share_of_a_stream_twice_is_an_error() -> None:
    with (
        SharedPool(workers=1) as pool,
        Loader(WRITTEN, pool=pool) as one,
        Loader(WRITTEN, pool=pool) as two,
        pytest.raises(ValueError, match=r"World\(rank, ranks\)"),
    ):
        for _ in zip(iter(one), iter(two), strict=True):
            pass


def test_two_iterators_of_one_loader_work_side_by_side() -> None:
    pipe = Pipe.of(Numbers(60)).batch(4)
    with SharedPool(workers=2) as pool, Loader(pipe, seed=3, pool=pool) as loader:
        for a, b in zip(iter(loader), iter(loader), strict=True):
            assert a == b


# --- the lab ----------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_the_lab_shows_that_every_batch_is_made_once() -> None:
    batches = depth(8, 24)
    words = ["--batches", str(batches), "--consumers", "1", "3"]
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OPENBLAS_NUM_THREADS": "1"}
    lab = [sys.executable, str(ROOT / "examples/labs/shared_pool.py"), *words]
    done = subprocess.run(lab, env=environment, capture_output=True, text=True, timeout=50, check=True)
    _, one, three, _, killed, left = done.stdout.splitlines()
    assert (one.split()[3:5], three.split()[3:5]) == ([str(batches), "0"], [str(batches), str(2 * batches)])
    assert killed == f"3 consumers, one of them killed: exit codes [0, 0, -9], {batches} batches made"
    assert left == "left in the pool: 0 slots lent, 0 results kept"


def test_arrays_that_a_consumer_writes_to_are_its_own() -> None:
    with (
        SharedPool(workers=1, consumers=2, same=True) as pool,
        Loader(PIPES["images"], seed=3, pool=pool) as one,
        Loader(PIPES["images"], seed=3, pool=pool) as two,
    ):
        for a, b in zip(one, two, strict=True):
            assert np.array_equal(a, b)
            a += 1
            assert not np.array_equal(a, b)


def test_a_pool_that_everybody_has_left_does_not_serve_the_data_of_those_who_are_gone() -> None:
    with SharedPool(workers=1) as pool:
        for data in ([1, 2], [3, 4]):  # of one length: to a snapshot they are the same pipe
            with Loader(Pipe.of(data), pool=pool) as loader:
                assert list(loader) == data
