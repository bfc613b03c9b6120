"""Starting worker processes: by fork, or as new interpreters. (By a server that forks: `fork_server`.)

A `StartedWorker` has the pid of a worker process, a pidfd (readable when it has ended), the consumer's end of its
socket, and how it ended. Nothing here depends on `multiprocessing`: a worker never imports or runs the user's script.
"""

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.engine.program import Program
from headrace.engine.wire import packets
from headrace.engine.workers.process import child, threads
from headrace.engine.workers.process.handles import Handles, after_fork, key
from headrace.memory.arena import memfd


@dataclass(slots=True, eq=False, weakref_slot=True)
class StartedWorker:
    """A worker process, from outside."""

    pid: int
    pidfd: int
    sock: socket.socket
    dump: int
    _status: Callable[[int], int | None]

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


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ours, theirs


_INTERRUPTS = (*child.HELD, *(getattr(signal, f"SIG{name}") for name in ("HUP", "ALRM", "USR1", "USR2")))
"""Signals whose handlers raise exceptions in some programs."""
_handlers: dict[signal.Signals, Any] = {}
"""Those that wait now."""


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Signals are held back: here, so that whoever was started is known to somebody, and in the new process.

    It inherits that Ctrl-C and SIGTERM wait, until it has set its own mind (`child.own_signals`): it would run the
    user's handlers, or print a traceback. A mask is not enough here: another thread may take the signal, and the
    handler would still run in this one, in the middle of what Python does around a fork, and leave its locks locked.
    """
    came: list[int] = []
    mine = threading.current_thread() is threading.main_thread() and not _handlers
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # from the first change on: an interrupt in the middle of it must not leave handlers put away
        if mine:
            for number in _INTERRUPTS:
                if callable(handler := signal.getsignal(number)):
                    _handlers[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        signal.pthread_sigmask(signal.SIG_BLOCK, child.HELD)
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


def by_fork(
    number: int, program: Program, extra: dict[str, Any], inherited: list[int], forget: Callable[[], None]
) -> StartedWorker:
    """Fork this process. The new one closes `inherited`, descriptors of other workers, and calls `forget`."""
    ours, theirs = pair()
    dump = memfd()
    consumer = os.pidfd_open(os.getpid())
    bound = _in_main_thread()

    def run() -> None:
        ours.close()
        for fd in inherited:
            with contextlib.suppress(OSError):
                os.close(fd)
        forget()
        _give_back_handlers()
        signal.set_wakeup_fd(-1)
        after_fork()
        threads.limit()
        child.serve(theirs, consumer, number, program, {**extra, "dump": dump, "bound": bound})

    child.flush()
    pid = child.fork(run)
    theirs.close()
    os.close(consumer)
    return StartedWorker(pid, os.pidfd_open(pid), ours, dump, child.waited)


def by_spawn(number: int, shipped: int, handles: Handles) -> StartedWorker:
    """A new interpreter."""
    ours, theirs = pair()
    send_start(ours, number, shipped, handles, None)
    dump = memfd()
    with contextlib.closing(theirs):
        process = interpreter("process.child", (theirs.fileno(), dump), _in_main_thread())
    return StartedWorker(process.pid, os.pidfd_open(process.pid), ours, dump, lambda pid: process.wait())


Surroundings = tuple[str, dict[str, str]]
"""The working folder and the environment of the consumer: a worker that a server has forked may have older ones."""


def send_start(
    sock: socket.socket, number: int, shipped: int, handles: Handles, surroundings: Surroundings | None
) -> None:
    """The first message to a worker that opens a shipped program; until then it waits."""
    told = (number, key() if handles.fds else None, surroundings)
    packets.send(sock, marshal.dumps(told), [shipped, *handles.fds])


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP), and will neither answer nor end."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False  # it is gone


def awaited(sock: socket.socket, pid: int, look: float, patience: float, deadline: float) -> bool:
    """Whether a process says something over its socket before the deadline; it may take its time, importing modules.

    That it was stopped (SIGSTOP) is no event one can wait for: it is looked at now and then, and given only `patience`.
    """
    until = time.monotonic() + deadline
    silent = time.monotonic() + patience
    while not packets.readable(sock.fileno(), look):
        now = time.monotonic()
        if now > until or (now >= silent and is_stopped(pid)):
            return False
    return True


def _in_main_thread() -> bool:
    return threading.get_native_id() == os.getpid()


def interpreter(module: str, fds: tuple[int, ...], *told: object) -> "subprocess.Popen[bytes]":
    """A new interpreter, which calls `main` of a module of workers with a pidfd of this process, `fds` and `told`."""
    here = os.path.dirname(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    )
    me = os.pidfd_open(os.getpid())
    quiet = f"import os, sys; [os.environ.setdefault(name, '1') for name in {threads.LIMITS}]"
    call = f"from headrace.engine.workers.{module} import main; main{(me, *fds, *told)!r}"
    command = [sys.executable, "-c", f"{quiet}; sys.path.insert(0, {here!r}); {call}"]
    try:
        return subprocess.Popen(command, pass_fds=(me, *fds), stdin=subprocess.DEVNULL)
    finally:
        os.close(me)


def end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait until a process has ended, for so long by itself."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
