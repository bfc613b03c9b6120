"""A stopped process (SIGSTOP) gives no answer and does not end: what depends on it goes on, or says so in time."""

import marshal
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace import Loader, Pipe, SharedPool
from headrace.engine.workers.process import fork_server
from headrace.engine.workers.shared import channel
from headrace.errors import WorkerDied, WorkerStuck
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


@pytest.mark.timeout(30)
@pytest.mark.parametrize("on_stuck", ["raise", "replace"])
def test_a_stopped_pool_is_stuck_within_the_time_out(on_stuck: Any) -> None:
    with SharedPool(1) as pool, Loader(PIPE, pool=pool, timeout=1.0, on_stuck=on_stuck) as loader:
        batches = iter(loader)
        assert next(batches) == BATCHES[0]
        with stopped(pool.server_pid):
            with pytest.raises(WorkerStuck, match=r"server of the pool .*process \d+.* does not answer"):
                list(batches)
            with (
                Loader(PIPE, pool=pool, timeout=0.5) as other,
                pytest.raises(WorkerStuck, match=r"has not answered within 0\.5 seconds"),
            ):
                list(other)


@pytest.mark.timeout(20)
def test_a_lost_pool_is_a_worker_that_died_whatever_is_asked_of_it() -> None:
    with SharedPool(1) as pool:
        with Loader(PIPE, pool=pool) as loader:
            batches = iter(loader)
            next(batches)
            os.kill(pool.server_pid, signal.SIGKILL)
            with pytest.raises(WorkerDied, match="the shared pool has ended"):
                list(batches)
            with pytest.raises(WorkerDied):
                list(Loader(PIPE, pool=pool))
        with pytest.raises(WorkerDied):
            pool.stats()


MALFORMED = [
    b"\x00garbage",
    b"S",  # a message that says that it travels in a descriptor, without one
    marshal.dumps((channel.ASK, [("not", "a", "ticket")])),
    marshal.dumps((channel.ASK, 7)),
    marshal.dumps((channel.FREE, [999])),
    marshal.dumps((channel.FREE, None)),
    marshal.dumps((channel.STACK, 999)),
    marshal.dumps((12345,)),
    marshal.dumps(()),
    marshal.dumps(7),
]


@pytest.mark.timeout(30)
def test_a_malformed_message_ends_its_senders_connection_and_not_the_pool() -> None:
    with SharedPool(1) as pool, Loader(PIPE, pool=pool) as loader:
        batches = iter(loader)
        assert next(batches) == BATCHES[0]
        key = marshal.dumps((channel.HELLO, channel.key_of(loader.program)))
        for bad in MALFORMED:
            with channel.connect(pool.address) as sock:
                sock.settimeout(10)
                sock.send(key)
                assert sock.recv(1 << 16)
                sock.send(bad)
                _read_to_the_end(sock)
        assert list(batches) == BATCHES[1:]
        assert pool.stats()["consumers"] == 1


def _read_to_the_end(sock: socket.socket) -> None:
    """Until the other side has hung up."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
