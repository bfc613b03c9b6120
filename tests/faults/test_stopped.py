"""A stopped process (SIGSTOP) gives no answer and does not end: what depends on it goes on, or says so in time."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process import fork_server
from headrace.errors import WorkerStuck
from tests.faults.deadly import SIZE, Numbers

BATCHES = [list(range(i, i + 4)) for i in range(0, SIZE, 4)]
PIPE = Pipe.of(Numbers()).batch(4)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


@pytest.mark.timeout(20)
@pytest.mark.parametrize("method", ["server", "forkserver"])
def test_a_stopped_fork_server_is_replaced(method: Any) -> None:
    with Loader(PIPE, workers=1, start_method=method, timeout=10) as loader:
        batches = iter(loader)
        assert next(batches) == BATCHES[0]
        server: Any = fork_server.COMMON.now
        if method == "forkserver":
            server = loader._pool.all()[0]._launcher._servers.now  # type: ignore[attr-defined]
        with stopped(server.process.pid):
            os.kill(loader.worker_pids()[0], signal.SIGKILL)
            assert list(batches) == BATCHES[1:]
            assert loader.stats().retries == 1


@pytest.mark.timeout(20)
def test_a_fork_server_that_is_stopped_while_it_is_asked_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fork_server.ForkServer()
    try:
        # It was not stopped when it was looked at; then it is.
        seen = [False]
        real = fork_server.is_stopped

        def stops(pid: int) -> bool:
            if seen == [False]:
                seen[0] = True
                os.kill(server.process.pid, signal.SIGSTOP)
                return False
            return real(pid)

        monkeypatch.setattr(fork_server, "is_stopped", stops)
        assert server.status(12345) is None
        assert not server.alive()
    finally:
        server.close()


@pytest.mark.timeout(20)
def test_a_stopped_worker_is_stuck_and_named() -> None:
    with Loader(PIPE, workers=1, start_method="fork", timeout=0.5) as loader:
        batches = iter(loader)
        next(batches)
        with stopped(loader.worker_pids()[0]), pytest.raises(WorkerStuck, match="does not handle signals"):
            list(batches)
