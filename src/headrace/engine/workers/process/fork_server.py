"""The fork server, from the consumer's side: a small clean process that forks workers in milliseconds.

    consumer ── ("fork", ...) ──> server ── fork ──> worker        consumer ── ("status", pid) ──> server

It has one thread and imported modules, never user objects. A server that has been stopped (SIGSTOP) would never answer:
it is killed, and the next worker is started by a new one. Its workers go on: they live as long as the consumer, not as
long as the server.
"""

import atexit
import contextlib
import marshal
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from headrace.engine.wire import packets
from headrace.engine.wire.unshipping import search_path
from headrace.engine.workers.process.handles import Handles
from headrace.engine.workers.process.start import StartedWorker, interpreter, pair, send_start, signals_held
from headrace.memory.arena import memfd

DEADLINE = 120.0
"""Seconds for the server to answer; it may have to import large modules first."""
SILENCE = 0.5
"""Seconds without an answer after which it is checked whether the server is stopped: there is no event for that."""
LARGE = ("numpy", "torch")
"""Packages that take long to import, and that a worker usually needs if its consumer has imported them."""
GRACE = 0.3
"""Seconds for the server to end by itself after its consumer has closed the connection."""


Join = Callable[[int, StartedWorker], None]
"""Takes over a started worker, by its number."""


class ServerHasThreads(RuntimeError):
    """The modules that a server has imported have started threads, so it can fork no more."""


class ForkServer:
    """One server."""

    def __init__(self) -> None:
        self.sock, theirs = pair()
        with contextlib.closing(theirs):
            self.process = interpreter("server", (theirs.fileno(),))
        self.owner = os.getpid()
        self.workers: weakref.WeakSet[StartedWorker] = weakref.WeakSet()
        self.modules: set[str] = set()
        """Modules that it was asked to import."""
        self._asked: deque[tuple[socket.socket, int]] = deque()
        """Workers that were asked for and not answered yet: this end of the worker's socket, and its dump."""
        self._idle: list[StartedWorker] = []
        """Workers that wait for a program."""
        self._warmed: set[str] = set()
        """Large packages that the idle workers have imported."""
        self._lock = threading.Lock()

    def start(self, number: int, shipped: int, modules: list[str], handles: Handles, join: Join) -> None:
        """Give `join` a worker for the program `shipped`: one that waits, or a new one."""
        if self._asked or self._idle:
            with self._lock:
                self._read_answers()
            if not self._warmed.issuperset(large()):
                self._end_idle()  # (each would import these packages by itself; the server imports them once)
        if not self._idle:
            with self._lock:
                self._request(modules)
                self._read_answers()
        with signals_held():  # an interrupt would leave a worker that nobody knows
            started = self._idle.pop(0)
            self.workers.add(started)
            with contextlib.suppress(BrokenPipeError):  # it was killed while it waited: its end is noticed as any other
                # Server and worker may be older than a change of folder or environment in the consumer: send these too.
                send_start(started.sock, number, shipped, handles, (os.getcwd(), dict(os.environ)))
            join(number, started)

    def warm(self, workers: int, modules: list[str]) -> None:
        """Ask for workers that wait for a program, without waiting for their start."""
        with self._lock:
            for _ in range(workers - len(self._asked) - len(self._idle)):
                self._request(modules)
        self._warmed.update(large())

    def _request(self, modules: list[str]) -> None:
        self.modules.update(modules)
        with signals_held():
            ours, theirs = pair()
            dump = memfd()
            self._asked.append((ours, dump))
            with contextlib.closing(theirs):
                self._send(("fork", modules, search_path()), [theirs.fileno(), dump])

    def _read_answers(self) -> None:
        """Read the answers about all workers that were asked for."""
        refused = ""
        while self._asked:
            self._await_answer()  # (The server may have to import much first, and Ctrl-C must work meanwhile.)
            with signals_held():
                answer, fds = self._answer()
                ours, dump = self._asked.popleft()
                if answer[0] == "forked":
                    self._idle.append(StartedWorker(answer[1], fds[0], ours, dump, self.status))
                else:
                    ours.close()
                    os.close(dump)
                    refused = answer[1]
        if refused:
            self._end_idle()
            raise ServerHasThreads(f"the worker server could not fork: {refused}")

    def _end_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()  # it ends when its socket does

    def status(self, pid: int) -> int | None:
        """The exit code of a worker that has ended; None if the server does not know it, or has ended."""
        try:
            with self._lock:
                self._read_answers()
                self._send(("status", pid), [])
                self._await_answer()
                answer, _ = self._answer()
        except OSError:
            return None
        return answer[1]  # type: ignore[no-any-return]

    def _send(self, question: tuple[Any, ...], fds: list[int]) -> None:
        with self._close_on_error():
            if is_stopped(self.process.pid):
                raise ConnectionAbortedError("the worker server was stopped")
            socket.send_fds(self.sock, [marshal.dumps(question)], fds)

    def _await_answer(self) -> None:
        with self._close_on_error():
            until = time.monotonic() + DEADLINE
            while not packets.readable(self.sock.fileno(), SILENCE):
                if is_stopped(self.process.pid):
                    raise ConnectionAbortedError("the worker server was stopped")
                if time.monotonic() > until:
                    raise TimeoutError(f"the worker server has not answered for {DEADLINE:.0f} seconds")

    def _answer(self) -> tuple[Any, list[int]]:
        with self._close_on_error():
            data, got, _, _ = socket.recv_fds(self.sock, 1 << 16, 4)
            if not data:
                raise ConnectionResetError("the worker server is gone")
            return marshal.loads(data), got

    @contextlib.contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """Close the connection if an exchange breaks off: the next answer would be that to an older question.

        The next worker is then started by a new server.
        """
        try:
            yield
        except BaseException:
            self.sock.close()
            self._forget_workers()
            if self.process.poll() is None and is_stopped(self.process.pid):
                self.process.kill()
                self.process.wait()
            raise

    def _forget_workers(self) -> None:
        """Close the sockets and dumps of workers that have no program: they end."""
        while self._asked:
            ours, dump = self._asked.popleft()
            ours.close()
            os.close(dump)
        self._end_idle()

    def alive(self) -> bool:
        return self.owner == os.getpid() and self.sock.fileno() >= 0 and self.process.poll() is None

    def close(self) -> None:
        self._forget_workers()
        self.sock.close()
        if self.owner == os.getpid():
            # (Should it have to be killed while it imports something large: its workers see their sockets close.)
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP), and will neither answer nor end."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False  # it is gone


def large() -> list[str]:
    """Large packages that this process has imported."""
    return [name for name in LARGE if name in sys.modules]


class ForkServers:
    """Starts a fork server when one is needed, and another when that has ended or can fork no more."""

    def __init__(self) -> None:
        self.now: ForkServer | None = None
        self._former: list[ForkServer] = []
        """Servers that can fork no more, but still have workers."""
        self._hopeless: set[frozenset[str]] = set()
        """Sets of modules that start threads when they are imported, even in a new server."""
        self._lock = threading.Lock()

    def start(self, number: int, shipped: int, modules: list[str], handles: Handles, join: Join) -> None:
        """Give `join` a new worker."""
        try:
            return self.running(modules).start(number, shipped, modules, handles, join)
        except ServerHasThreads:
            if not self._retire(modules):
                raise
        except ConnectionAbortedError:
            pass
        self.running(modules).start(number, shipped, modules, handles, join)

    def begin(self) -> None:
        """Start the server, if there is none: it gets ready while the consumer packs the program."""
        with contextlib.suppress(ServerHasThreads, OSError):  # (The first request for a worker raises what is wrong.)
            self.running([])

    def running(self, modules: list[str]) -> ForkServer:
        """The server, started if there is none that runs."""
        with self._lock:
            if frozenset(modules) in self._hopeless:
                raise ServerHasThreads("what the pipe imports starts threads")
            if self.now is None or not self.now.alive():
                self._end(self.now)
                with signals_held():
                    self.now = ForkServer()
                    atexit.register(self.now.close)
            return self.now

    def _retire(self, modules: list[str]) -> bool:
        """Give up a server that has threads; whether a new one, without the modules of other loaders, may do better."""
        with self._lock:
            server, self.now = self.now, None
            if server is not None:
                if server.modules <= {*modules}:
                    self._hopeless.add(frozenset(modules))
                self._former.append(server)
            for former in [f for f in self._former if not f.workers]:
                self._former.remove(former)
                self._end(former)
            return frozenset(modules) not in self._hopeless

    def _end(self, server: ForkServer | None) -> None:
        if server is not None:
            atexit.unregister(server.close)
            server.close()

    def forget(self) -> None:
        """In a forked process: close the connections to the servers, which belong to the parent."""
        for server in (self.now, *self._former):
            if server is not None:
                server.sock.close()
                server._forget_workers()
        self.now = None
        self._former.clear()

    def close(self) -> None:
        for server in (self.now, *self._former):
            self._end(server)


COMMON = ForkServers()
"""The servers that all loaders of this process share."""
