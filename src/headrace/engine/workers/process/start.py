"""Starting worker processes: by fork, by a clean server that forks, or as new interpreters.

A started worker is a `Started`: its pid, a pidfd (readable when it has ended), the consumer's end of its socket, and
how it ended. Nothing here depends on `multiprocessing`: a worker never imports or runs the user's script.
"""

import atexit
import contextlib
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from headrace.engine.program import Program
from headrace.engine.wire import packets
from headrace.engine.wire.shipping import search_path
from headrace.engine.workers.process import child
from headrace.engine.workers.process.handles import Handles, after_fork, key
from headrace.memory.arena import scratch

SERVER_DEADLINE = 120.0
"""Seconds for the server to answer; it may have to import large modules first."""


SERVER_GRACE = 0.3
"""Seconds for the server to end by itself when its consumer has hung up."""


class Started:
    """A worker process, from outside."""

    __slots__ = ("__weakref__", "_status", "dump", "pid", "pidfd", "sock")

    def __init__(
        self, pid: int, pidfd: int, sock: socket.socket, dump: int, status: Callable[[int], int | None]
    ) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.sock = sock
        self.dump = dump
        self._status = status

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def status(self) -> int | None:
        """How it ended, as `waitpid` tells it turned into an exit code (negative: signal); None if nobody knows."""
        return self._status(self.pid)

    def close(self) -> None:
        self.sock.close()
        os.close(self.pidfd)
        os.close(self.dump)


def _waitpid(pid: int) -> int | None:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None  # somebody else has waited for it


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ours, theirs


_INTERRUPTS = (*child.HELD, *(getattr(signal, f"SIG{name}") for name in ("HUP", "ALRM", "USR1", "USR2")))
"""Signals whose handlers raise exceptions in some programs."""
_handlers: dict[signal.Signals, Any] = {}
"""Those that wait now."""


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Signals are held back: here, so that whoever was started is known to somebody, and in the new process.

    It inherits that Ctrl-C and SIGTERM wait, until it has set its own mind (`child.own_signals`): it would run the
    user's handlers, or print a traceback. A mask is not enough here: another thread may take the signal, and the
    handler would still run in this one, in the middle of what Python does around a fork, and leave its locks locked.
    """
    came: list[int] = []
    mine = threading.current_thread() is threading.main_thread() and not _handlers
    if mine:
        for number in _INTERRUPTS:
            if callable(handler := signal.getsignal(number)):
                _handlers[number] = handler
                signal.signal(number, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, child.HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if mine:
            _give_back_handlers()
        for sent in came:
            signal.raise_signal(sent)


def _give_back_handlers() -> None:
    while _handlers:
        signal.signal(*_handlers.popitem())


def by_fork(number: int, program: Program, extra: dict[str, Any], inherited: list[int]) -> Started:
    """Fork this process. `inherited` are descriptors of other workers that the new one must not keep open."""
    ours, theirs = _pair()
    dump = scratch()
    consumer = os.pidfd_open(os.getpid())
    bound = _in_main_thread()
    child.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            for fd in inherited:
                with contextlib.suppress(OSError):
                    os.close(fd)
            _Server.forget()
            _give_back_handlers()
            signal.set_wakeup_fd(-1)
            after_fork()
            child.serve(theirs, consumer, number, program, {**extra, "dump": dump, "bound": bound})
            code = 0
        except SystemExit as left:
            code = child.exit_code(left)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            # Whatever happens, this copy of the user's program must not run on.
            child.leave(code)
    theirs.close()
    os.close(consumer)
    return Started(pid, os.pidfd_open(pid), ours, dump, _waitpid)


def by_spawn(number: int, shipped: int, handles: Handles) -> Started:
    """A new interpreter."""
    ours, theirs = _pair()
    _send_handles(ours, handles)
    dump = scratch()
    consumer = os.pidfd_open(os.getpid())
    fds = (theirs.fileno(), consumer, shipped, dump)
    told = (theirs.fileno(), consumer, shipped, number, dump, _in_main_thread())
    call = f"from headrace.engine.workers.process.child import main; main{told}"
    process = subprocess.Popen(_python(call), pass_fds=fds, stdin=subprocess.DEVNULL)
    theirs.close()
    os.close(consumer)
    pidfd = os.pidfd_open(process.pid)
    return Started(process.pid, pidfd, ours, dump, lambda pid: process.wait())


def _send_handles(sock: socket.socket, handles: Handles) -> None:
    """The first message to a worker that opens a shipped program."""
    packets.send(sock, marshal.dumps(key() if handles.fds else None), handles.fds)


def _in_main_thread() -> bool:
    return threading.get_native_id() == os.getpid()


def by_server(
    number: int, shipped: int, modules: list[str], handles: Handles, private: "Server | None" = None
) -> Started:
    """Forked by the clean server of this process."""
    try:
        return _by(private or _Server.running(modules), number, shipped, modules, handles)
    except Threaded:
        if private is not None or not _Server.retire(modules):
            raise
    return _by(_Server.running(modules), number, shipped, modules, handles)


def _by(server: "Server", number: int, shipped: int, modules: list[str], handles: Handles) -> Started:
    ours, theirs = _pair()
    _send_handles(ours, handles)
    dump = scratch()
    try:
        pid, pidfd = server.fork(theirs.fileno(), shipped, number, dump, modules)
    except BaseException:
        ours.close()
        os.close(dump)
        raise
    finally:
        theirs.close()
    started = Started(pid, pidfd, ours, dump, server.status)
    server.workers.add(started)
    return started


def _python(call: str) -> list[str]:
    here = os.path.dirname(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    )
    quiet = f"import os, sys; [os.environ.setdefault(name, '1') for name in {child.THREAD_LIMITS}]; "
    return [sys.executable, "-c", f"{quiet}sys.path.insert(0, {here!r}); {call}"]


class Threaded(RuntimeError):
    """A server whose imports have started threads can fork no more."""


class Server:
    """The clean server: a small process that has imported what workers need and forks them in milliseconds."""

    def __init__(self) -> None:
        ours, theirs = _pair()
        consumer = os.pidfd_open(os.getpid())
        call = f"from headrace.engine.workers.process.server import main; main({theirs.fileno()}, {consumer})"
        self.process = subprocess.Popen(
            _python(call), pass_fds=(theirs.fileno(), consumer), stdin=subprocess.DEVNULL, start_new_session=False
        )
        theirs.close()
        os.close(consumer)
        ours.settimeout(SERVER_DEADLINE)
        self.sock = ours
        self.owner = os.getpid()
        self.workers: weakref.WeakSet[Started] = weakref.WeakSet()
        self.modules: set[str] = set()
        """What it was asked to import."""
        self._lock = threading.Lock()

    def fork(self, sock: int, shipped: int, number: int, dump: int, modules: list[str]) -> tuple[int, int]:
        self.modules.update(modules)
        # The server has started some time ago: what a worker inherits is what the consumer has now.
        inherited = (search_path(), os.getcwd(), dict(os.environ))
        answer, fds = self._ask(("fork", number, modules, *inherited), [sock, shipped, dump])
        if answer[0] != "forked":
            raise Threaded(f"the worker server could not fork: {answer[1]}")
        return answer[1], fds[0]

    def status(self, pid: int) -> int | None:
        try:
            answer, _ = self._ask(("status", pid), [])
        except OSError:
            return None
        return answer[1]  # type: ignore[no-any-return]

    def _ask(self, question: tuple[Any, ...], fds: list[int]) -> tuple[Any, list[int]]:
        with self._lock:
            try:
                socket.send_fds(self.sock, [marshal.dumps(question)], fds)
                data, got, _, _ = socket.recv_fds(self.sock, 1 << 16, 4)
            except BaseException:
                # A question without its answer: the next answer would be the wrong one. The next need starts a new one.
                self.sock.close()
                raise
        if not data:
            raise ConnectionResetError("the worker server is gone")
        return marshal.loads(data), got

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
        return bool(poll.poll(SERVER_GRACE * 1000))
    finally:
        os.close(pidfd)


class _Server:
    """The one server of this process, started at first need."""

    _now: Server | None = None
    _former: ClassVar[list[Server]] = []
    """Servers that fork no more, but still have workers."""
    _hopeless: ClassVar[set[frozenset[str]]] = set()
    """Modules with which even a new server has threads."""
    _lock = threading.Lock()

    @classmethod
    def running(cls, modules: list[str]) -> Server:
        with cls._lock:
            if frozenset(modules) in cls._hopeless:
                raise Threaded("what the pipe imports starts threads")
            if cls._now is None or not cls._now.alive():
                with signals_wait():
                    cls._now = Server()
                    atexit.register(cls._now.close)
            return cls._now

    @classmethod
    def retire(cls, modules: list[str]) -> bool:
        """The server has threads: whether a new one, without what others have made it import, may do better."""
        with cls._lock:
            server, cls._now = cls._now, None
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
        for server in (cls._now, *cls._former):
            if server is not None:
                server.sock.close()
        cls._now = None
        cls._former.clear()
