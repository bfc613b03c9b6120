"""The fork server's process: one thread, no user objects, only imported modules; forks workers when the consumer asks.

It lives as long as its consumer: when that has ended, in whatever way, the server kills its workers and ends. It waits
for the end of each worker itself, so that no zombie is left if the consumer is interrupted before it asks for the exit
code.
"""

import contextlib
import importlib
import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable

from headrace.engine.workers.process import child, threads


def main(consumer: int, sock: int) -> None:
    child.reset_signals()
    connection = socket.socket(fileno=sock)
    children = Children()
    poll = children.poll
    poll.register(connection, select.POLLIN)
    poll.register(consumer, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if consumer in ready:
            break
        children.reap(ready)
        if connection.fileno() not in ready:
            continue
        try:
            data, fds, _, _ = socket.recv_fds(connection, 1 << 18, 8)
            if not data:
                break
            question = marshal.loads(data)
            if question[0] == "fork":
                _fork(connection, consumer, fds, question[1:], children)
            else:
                connection.send(marshal.dumps(("status", children.status(question[1]))))
        except (BrokenPipeError, ConnectionResetError):
            break  # the consumer was interrupted, and has closed the connection
    children.kill()
    os._exit(0)


class Children:
    """The workers that the server has forked, and how those have ended that the consumer has not asked about."""

    def __init__(self) -> None:
        self.poll = select.poll()
        self._running: dict[int, int] = {}
        """Their pids, by pidfd."""
        self._ended: dict[int, int | None] = {}
        """Exit codes, by pid."""

    def add(self, pid: int) -> int:
        """A pidfd of a new worker. It belongs to this object."""
        self._ended.pop(pid, None)  # that of an earlier process of the same number
        pidfd = os.pidfd_open(pid)
        self._running[pidfd] = pid
        self.poll.register(pidfd, select.POLLIN)
        return pidfd

    def reap(self, ready: Iterable[int]) -> None:
        """Keep the exit codes of the workers among these descriptors: they have ended."""
        for pidfd in self._running.keys() & set(ready):
            pid = self._running.pop(pidfd)
            self._ended[pid] = child.exit_status(pid)
            self.poll.unregister(pidfd)
            os.close(pidfd)

    def status(self, pid: int) -> int | None:
        """The exit code of a worker that has ended; None if it is not known."""
        self.reap([pidfd for pidfd, running in self._running.items() if running == pid])
        return self._ended.pop(pid, None)

    def kill(self) -> None:
        for pid in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a worker: its siblings are the server's."""
        for pidfd in self._running:
            os.close(pidfd)


def _fork(
    connection: socket.socket, consumer: int, fds: list[int], question: tuple[list[str], list[str]], children: Children
) -> None:
    sock, dump = fds
    modules, path = question
    sys.path.extend(entry for entry in path if entry not in sys.path)
    for name in modules:
        # A module that cannot be imported here is reported by the worker that needs it, with its own traceback.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        connection.send(marshal.dumps(("refused", f"imported modules have started threads ({threads} now)")))
    else:

        def run() -> None:
            connection.close()
            children.forget()
            with socket.socket(fileno=sock) as ours:
                child.open_and_serve(ours, consumer, dump, surround=_surround)

        pid = child.fork(run)
        socket.send_fds(connection, [marshal.dumps(("forked", pid))], [children.add(pid)])
    for fd in fds:
        os.close(fd)


def _surround(folder: str, environment: dict[str, str]) -> None:
    """Take over the working folder and the environment of the consumer."""
    os.chdir(folder)
    for name in os.environ.keys() - environment.keys() - {*threads.LIMITS}:
        del os.environ[name]
    os.environ.update(environment)
