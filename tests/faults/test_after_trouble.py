"""After an error the loader is as good as new, and what was not delivered is never lost in silence.

Every loader here has a time-out, so that a hang is a failure of the test and not of the whole run.
"""

import importlib
import os
import random
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process import fork_server
from headrace.engine.workers.process.start import StartedWorker
from headrace.errors import Closed, PoisonSample, WorkerDied
from headrace.memory import arena
from headrace.op import Op
from tests.depth import depth
from tests.laws.pipes import KINDS, Numbers

HOW: dict[str, Any] = {"workers": 2, "start_method": "fork", "timeout": 30}


def worker_pids(loader: Loader[Any]) -> list[int]:
    return [w.started.pid for workers in loader._pool.all() for w in workers._workers]


def flat(batches: Any) -> list[Any]:
    return [x for batch in batches for x in batch]


def test_a_loader_reads_on_after_a_death_that_was_an_error() -> None:
    with Loader(Pipe.of(Numbers(400)).batch(4), restarts=0, **HOW) as loader:
        batches = iter(loader)
        next(batches)
        for pid in worker_pids(loader):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied):
            list(batches)
        assert flat(loader) == list(range(400))


def deadly_once(x: int) -> int:
    if x == 13 and not os.path.exists(os.environ["HEADRACE_TEST_CALM"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_loader_reads_on_after_a_poison_sample(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_CALM", str(tmp_path / "calm"))
    with Loader(Pipe.of(Numbers(40)).map(deadly_once).batch(4), **HOW) as loader:
        for _ in range(2):
            with pytest.raises(PoisonSample):
                list(loader)
        (tmp_path / "calm").touch()
        assert flat(loader) == list(range(40))


class Interrupted(BaseException):
    """Like KeyboardInterrupt, at any moment."""


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.timeout(depth(120, 1500))
@pytest.mark.parametrize("method", ["fork", "server"])
def test_an_interrupt_at_any_moment_leaves_the_loader_whole(method: str, alarm: None) -> None:
    # An import that is interrupted leaves its file to the collector, which warns of it.
    importlib.import_module("headrace.engine.wire.shipping")
    want = [x for x in range(2000) if x % 2]
    chance = random.Random(1)
    pipe = Pipe.of(Numbers(2000)).filter(lambda x: x % 2 == 1).batch(4)
    with Loader(pipe, **{**HOW, "start_method": method}) as loader:
        for _ in range(depth(12, 500)):
            with suppress(Interrupted):
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.03))
                    for _ in loader:
                        pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)  # (the last moment at which it may come)
            assert flat(loader) == want


def spent(x: int) -> int:
    return next(iter(())) if x == 10 else x


@pytest.mark.parametrize("kind", ["inline", "thread1", "fork2"])
def test_stop_iteration_from_user_code_is_an_error_and_not_the_end(kind: str) -> None:
    pipe = Pipe.of(Numbers(40)).filter(lambda x: True).map(spent).batch(4)
    with Loader(pipe, **KINDS[kind]) as loader, pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)


def breaking() -> Iterator[int]:
    # In the first block: the second one is on its way by then.
    for i in range(5000):
        if i == 10:
            raise ValueError(i)
        yield i


@pytest.mark.parametrize(
    "kind",
    [
        "inline",
        "thread1",
        "fork2",
    ],
)
def test_a_stream_that_failed_is_over_and_never_starts_again(kind: str) -> None:
    got: list[int] = []
    errors = 0
    with Loader(Pipe.of(breaking).batch(100), **KINDS[kind]) as loader:
        batches = iter(loader)
        while errors < 5:
            try:
                got += next(batches)
            except StopIteration:
                break
            except ValueError:
                errors += 1
    assert errors == 1
    assert got == list(range(len(got)))


def test_a_batch_that_found_no_shared_memory_is_not_left_out_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = arena.allocate, 0

    def third_time_full(size: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise arena.OutOfSharedMemory(28, "no room")
        return real(size)

    monkeypatch.setattr(arena, "allocate", third_time_full)
    got: list[int] = []
    with Loader(Pipe.of(Numbers(100)).batch(4), **HOW) as loader:
        batches = iter(loader)
        for _ in range(100):
            try:
                got += next(batches)
            except (StopIteration, Closed):
                break
            except OSError:
                continue
    assert got == list(range(len(got)))


def long_error(x: int) -> int:
    raise ValueError("x" * 100_000)


def test_an_error_keeps_its_type_however_long_its_message_is() -> None:
    with Loader(Pipe.of(Numbers(4)).map(long_error).batch(2), **HOW) as loader, pytest.raises(ValueError):
        list(loader)


def wordy(x: int) -> int:
    raise ValueError("x" * 500)


def test_many_skipped_samples_of_one_batch_with_long_messages_are_counted() -> None:
    with Loader(Pipe.of(Numbers(2048)).map(wordy).batch(1024), on_error="skip", **HOW) as loader:
        assert list(loader) == []
        assert loader.stats().skips == 2048


class Noted(Op[Any, Any]):
    """An op with a large state."""

    def __init__(self, size: int) -> None:
        self.size = size

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, here = inputs
        note = "x" * self.size
        for sample in samples:
            here.rest(note)
            yield sample


@pytest.mark.parametrize("size", [1000, 300_000, 3_000_000])
def test_a_large_state_of_a_stream_travels(size: int) -> None:
    with Loader(Pipe.of(lambda: iter(range(1500))).then(Noted(size)).batch(10), **HOW) as loader:
        assert flat(loader) == list(range(1500))


def test_a_snapshot_of_three_strands_is_refused_by_a_loader_of_one() -> None:
    pipe = Pipe.of(lambda: iter(range(100))).map(str)
    with Loader(pipe, strands=3, **HOW) as loader:
        samples = iter(loader)
        [next(samples) for _ in range(10)]
        state = loader.state_dict()
        rest = list(samples)
    with Loader(pipe, strands=3) as loader:
        loader.load_state_dict(state)
        assert list(loader) == rest
    with Loader(pipe) as loader, pytest.raises(ValueError, match="strands=3"):
        loader.load_state_dict(state)


def test_the_error_of_one_worker_init_comes_every_time() -> None:
    def init(number: int) -> None:
        if number == 1:
            raise ValueError("not this one")

    with Loader(Pipe.of(Numbers(400)).batch(4), worker_init=init, **HOW) as loader:
        for _ in range(3):
            with pytest.raises(ValueError, match="not this one"):
                list(loader)


@pytest.mark.parametrize("method", ["server", "fork"])
def test_an_interrupt_while_workers_end_leaves_no_zombie(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(Pipe.of(Numbers(40)).batch(4), workers=3, start_method=method, timeout=30)
    next(iter(loader))
    pids = loader.worker_pids()

    def interrupted(_: StartedWorker) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StartedWorker, "status", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loader.close()
    loader.close()
    if method == "server":
        assert fork_server.COMMON.now is not None
        fork_server.COMMON.now.status(pids[0])  # (the server has heard of all that had ended before it was asked)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.timeout(20)
def test_a_fork_server_reaps_workers_that_nobody_asks_about() -> None:
    with Loader(Pipe.of(Numbers(400)).batch(4), workers=2, start_method="server", timeout=30) as loader:
        batches = iter(loader)
        next(batches)
        server, (pid, _) = fork_server.COMMON.now, loader.worker_pids()
        assert server is not None
        ended = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        try:
            assert select.select([ended], [], [], 10)[0]
        finally:
            os.close(ended)
        server.status(1)  # no worker of its own
        assert not os.path.exists(f"/proc/{pid}")
        assert server.status(pid) == -signal.SIGKILL
        list(batches)
