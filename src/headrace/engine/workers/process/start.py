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
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.engine.program import Program
from headrace.engine.wire import packets
from headrace.engine.workers.process import child, threads
from headrace.engine.workers.process.handles import Handles, after_fork, authkey
from headrace.memory.arena import memfd


@dataclass(slots=True, eq=False, weakref_slot=True)
class StartedWorker:
    """A worker process, from outside."""

    pid: int
    pidfd: int
    sock: socket.socket
    dump: int
    _status: Callable[[int], int | None]

    def __post_init__(self) -> None:
        _open.add(self)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def status(self) -> int | None:
        """Its exit code, once it has ended (negative: the signal that killed it); None if that is not known."""
        return self._status(self.pid)

    def close(self) -> None:
        """Let go of it; a second call does nothing."""
        if self in _open:
            _open.remove(self)
            self.sock.close()
            os.close(self.pidfd)
            os.close(self.dump)


_open: weakref.WeakSet[StartedWorker] = weakref.WeakSet()
_interpreters: "weakref.WeakSet[subprocess.Popen[bytes]]" = weakref.WeakSet()


def _forked() -> None:
    """In any copy of this process: workers and interpreters are the parent's, and it is the parent that waits for them.

    What is left open here would outlive the parent, and the garbage collector would complain of it.
    """
    for worker in [*_open]:
        worker.close()
    for process in _interpreters:
        process.returncode = 0  # (Nothing is known of it here; without a code, it would be reported as still running.)


if hasattr(os, "register_at_fork"):  # (a system that forks)
    os.register_at_fork(after_in_child=_forked)


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of the socket between a consumer and a worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ours, theirs


_INTERRUPTS = (*child.HELD, *(getattr(signal, f"SIG{name}") for name in ("HUP", "ALRM", "USR1", "USR2")))
"""Signals whose handlers raise exceptions in some programs."""
_handlers: dict[signal.Signals, Any] = {}
"""The user's handlers, while others stand in for them."""


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while a process is being started, in this process and in the new one.

    Here, so that no handler raises between the start of a process and the moment when it is known to be running. The
    new process inherits the mask, until it has set its own handlers (`child.reset_signals`): without it, Ctrl-C or
    SIGTERM would run the user's handlers there, or print a traceback. In this process a mask is not enough: another
    thread may take the signal, and the handler would still run in this one, in the middle of what Python does around a
    fork, and leave locks locked.
    """
    came: list[int] = []
    replaces = threading.current_thread() is threading.main_thread() and not _handlers
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # from the first change on: an interrupt in the middle of it must not leave handlers put away
        if replaces:
            for number in _INTERRUPTS:
                if callable(handler := signal.getsignal(number)):
                    _handlers[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        signal.pthread_sigmask(signal.SIG_BLOCK, child.HELD)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)  # (a handler that is back may raise while others are not)
        try:
            if replaces:
                _give_back_handlers()
        finally:
            for sent in came:
                signal.raise_signal(sent)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _give_back_handlers() -> None:
    try:
        for number, handler in [*_handlers.items()]:
            signal.signal(number, handler)
            del _handlers[number]
    finally:
        if _handlers:  # another thread took a signal, and a handler that was back has raised
            _give_back_handlers()


def by_fork(number: int, program: Program, extra: dict[str, Any], inherited: list[int]) -> StartedWorker:
    """Fork this process. The new one closes `inherited`, descriptors that only the consumer needs."""
    bound = _in_main_thread()
    consumer = os.pidfd_open(os.getpid())
    try:
        with ends_and_dump() as (ours, theirs, dump):

            def run() -> None:
                ours.close()
                for fd in inherited:
                    os.close(fd)
                _give_back_handlers()
                signal.set_wakeup_fd(-1)
                after_fork()
                threads.limit()
                child.serve(theirs, consumer, number, program, {**extra, "dump": dump, "bound": bound})

            child.flush()
            pid = child.fork(run)
            return StartedWorker(pid, os.pidfd_open(pid), ours, dump, child.exit_status)
    finally:
        os.close(consumer)


def by_spawn(number: int, shipped: int, handles: Handles) -> StartedWorker:
    """A new interpreter."""
    with ends_and_dump() as (ours, theirs, dump):
        send_start(ours, number, shipped, handles, None)
        process = interpreter("child", (theirs.fileno(), dump), _in_main_thread())
        return StartedWorker(process.pid, os.pidfd_open(process.pid), ours, dump, lambda pid: process.wait())


@contextlib.contextmanager
def ends_and_dump() -> Iterator[tuple[socket.socket, socket.socket, int]]:
    """The two ends of a new worker's socket, and its dump. What is the consumer's is closed if the start fails."""
    with contextlib.ExitStack() as ours_alone:
        ours, theirs = pair()
        ours_alone.callback(ours.close)
        with theirs:
            dump = memfd()
            ours_alone.callback(os.close, dump)
            yield ours, theirs, dump
        ours_alone.pop_all()


Surroundings = tuple[str, dict[str, str]]
"""The working folder and the environment of the consumer: a worker that a server has forked may have older ones."""


def send_start(
    sock: socket.socket, number: int, shipped: int, handles: Handles, surroundings: Surroundings | None
) -> None:
    """Send a waiting worker its number, and the descriptor of the program that it opens."""
    message = (number, authkey() if handles.fds else None, surroundings)
    packets.send(sock, marshal.dumps(message), [shipped, *handles.fds])


def _in_main_thread() -> bool:
    return threading.get_native_id() == os.getpid()


def interpreter(module: str, fds: tuple[int, ...], *arguments: object) -> "subprocess.Popen[bytes]":
    """A new interpreter that calls `main` of a module in this folder: with a pidfd of this one, `fds`, `arguments`."""
    here = os.path.abspath(__file__)
    for _ in range(5):
        here = os.path.dirname(here)
    me = os.pidfd_open(os.getpid())
    quiet = f"import os, sys; [os.environ.setdefault(name, '1') for name in {threads.LIMITS}]"
    call = f"from headrace.engine.workers.process.{module} import main; main{(me, *fds, *arguments)!r}"
    command = [sys.executable, "-P", "-c", f"{quiet}; sys.path.insert(0, {here!r}); {call}"]
    try:
        process = subprocess.Popen(command, pass_fds=(me, *fds), stdin=subprocess.DEVNULL)
    finally:
        os.close(me)
    _interpreters.add(process)
    return process
