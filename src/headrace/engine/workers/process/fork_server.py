"""The fork server, from the consumer's side: a small clean process that forks workers in milliseconds.

    consumer ── ("fork", ...) ──> server ── fork ──> worker        consumer ── ("status", pid) ──> server

It has one thread and imported modules, never user objects. One question at a time. A server that has been stopped
(SIGSTOP) would never answer: it is killed, and whoever needs one starts another. Its workers go on: they live as long
as the consumer, not as long as the server.
"""

import atexit
import marshal
import os
import select
import socket
import subprocess
import threading
import time
import weakref
from typing import Any, ClassVar

from headrace.engine.wire.shipping import search_path
from headrace.engine.workers.process.handles import Handles
from headrace.engine.workers.process.start import Started, is_stopped, pair, python, send_handles, signals_wait
from headrace.memory.arena import scratch

DEADLINE = 120.0
"""Seconds for the server to answer; it may have to import large modules first."""
SILENCE = 0.5
"""Seconds of silence after which the server is looked at. (That a process was stopped is no event one can wait for.)"""
GRACE = 0.3
"""Seconds for the server to end by itself when its consumer has hung up."""


class Threaded(RuntimeError):
    """A server whose imports have started threads can fork no more."""


class ForkServer:
    """One server."""

    def __init__(self) -> None:
        ours, theirs = pair()
        consumer = os.pidfd_open(os.getpid())
        call = f"from headrace.engine.workers.process.server import main; main({theirs.fileno()}, {consumer})"
        self.process = subprocess.Popen(
            python(call), pass_fds=(theirs.fileno(), consumer), stdin=subprocess.DEVNULL, start_new_session=False
        )
        theirs.close()
        os.close(consumer)
        self.sock = ours
        self.owner = os.getpid()
        self.workers: weakref.WeakSet[Started] = weakref.WeakSet()
        self.modules: set[str] = set()
        """What it was asked to import."""
        self._lock = threading.Lock()

    def start(self, number: int, shipped: int, modules: list[str], handles: Handles) -> Started:
        """A new worker."""
        ours, theirs = pair()
        send_handles(ours, handles)
        dump = scratch()
        self.modules.update(modules)
        # The server has started some time ago: what a worker inherits is what the consumer has now.
        question = ("fork", number, modules, search_path(), os.getcwd(), dict(os.environ))
        try:
            answer, fds = self._ask(question, [theirs.fileno(), shipped, dump])
            if answer[0] != "forked":
                raise Threaded(f"the worker server could not fork: {answer[1]}")
        except BaseException:
            ours.close()
            os.close(dump)
            raise
        finally:
            theirs.close()
        started = Started(answer[1], fds[0], ours, dump, self.status)
        self.workers.add(started)
        return started

    def status(self, pid: int) -> int | None:
        """How a worker has ended; None if the server does not know, or is gone."""
        try:
            answer, _ = self._ask(("status", pid), [])
        except OSError:
            return None
        return answer[1]  # type: ignore[no-any-return]

    def _ask(self, question: tuple[Any, ...], fds: list[int]) -> tuple[Any, list[int]]:
        with self._lock:
            try:
                if self._stopped():
                    raise ConnectionAbortedError("the worker server was stopped")
                socket.send_fds(self.sock, [marshal.dumps(question)], fds)
                self._await_answer()
                data, got, _, _ = socket.recv_fds(self.sock, 1 << 16, 4)
            except BaseException:
                # A question without its answer: the next answer would be the wrong one. The next need starts a new one.
                self.sock.close()
                if self.process.poll() is None and self._stopped():
                    self.process.kill()
                    self.process.wait()
                raise
        if not data:
            raise ConnectionResetError("the worker server is gone")
        return marshal.loads(data), got

    def _await_answer(self) -> None:
        answered = select.poll()
        answered.register(self.sock, select.POLLIN)
        until = time.monotonic() + DEADLINE
        while not answered.poll(SILENCE * 1000):
            if self._stopped():
                raise ConnectionAbortedError("the worker server was stopped")
            if time.monotonic() > until:
                raise TimeoutError(f"the worker server has not answered for {DEADLINE:.0f} seconds")

    def _stopped(self) -> bool:
        return is_stopped(self.process.pid)

    def alive(self) -> bool:
        return self.owner == os.getpid() and self.sock.fileno() >= 0 and self.process.poll() is None

    def close(self) -> None:
        self.sock.close()
        if self.owner == os.getpid():
            if self.process.poll() is None and not _ends(self.process.pid):
                self.process.kill()  # it is importing something large; its workers see the end of their sockets
            self.process.wait()


def _ends(pid: int) -> bool:
    """Whether a child ends by itself within the grace."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(GRACE * 1000))
    finally:
        os.close(pidfd)


class CommonServer:
    """The one server that the loaders of this process share, started at first need."""

    now: ForkServer | None = None
    _former: ClassVar[list[ForkServer]] = []
    """Servers that fork no more, but still have workers."""
    _hopeless: ClassVar[set[frozenset[str]]] = set()
    """Modules with which even a new server has threads."""
    _lock = threading.Lock()

    @classmethod
    def start(cls, number: int, shipped: int, modules: list[str], handles: Handles) -> Started:
        """A new worker."""
        try:
            return cls.running(modules).start(number, shipped, modules, handles)
        except Threaded:
            if not cls.retire(modules):
                raise
        except ConnectionAbortedError:
            pass
        return cls.running(modules).start(number, shipped, modules, handles)

    @classmethod
    def running(cls, modules: list[str]) -> ForkServer:
        with cls._lock:
            if frozenset(modules) in cls._hopeless:
                raise Threaded("what the pipe imports starts threads")
            if cls.now is None or not cls.now.alive():
                with signals_wait():
                    cls.now = ForkServer()
                    atexit.register(cls.now.close)
            return cls.now

    @classmethod
    def retire(cls, modules: list[str]) -> bool:
        """The server has threads: whether a new one, without what others have made it import, may do better."""
        with cls._lock:
            server, cls.now = cls.now, None
            if server is not None:
                if server.modules <= {*modules}:
                    cls._hopeless.add(frozenset(modules))
                cls._former.append(server)
            for former in [f for f in cls._former if not f.workers]:
                cls._former.remove(former)
                atexit.unregister(former.close)
                former.close()
            return frozenset(modules) not in cls._hopeless

    @classmethod
    def forget(cls) -> None:
        """In a forked process: the server belongs to the parent."""
        for server in (cls.now, *cls._former):
            if server is not None:
                server.sock.close()
        cls.now = None
        cls._former.clear()
