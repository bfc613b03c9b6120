"""The fork server's process: one thread, no user objects, only imported modules; forks workers when the consumer asks.

It lives as long as its consumer: when that has ended, in whatever way, the server kills its workers and ends.
"""

import contextlib
import importlib
import marshal
import os
import select
import signal
import socket
import sys

from headrace.engine.workers.process import child, threads


def main(consumer: int, sock: int) -> None:
    child.reset_signals()
    connection = socket.socket(fileno=sock)
    children: set[int] = set()
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(consumer, select.POLLIN)
    while True:
        if consumer in {fd for fd, _ in poll.poll()}:
            break
        try:
            data, fds, _, _ = socket.recv_fds(connection, 1 << 18, 8)
            if not data:
                break
            question = marshal.loads(data)
            if question[0] == "fork":
                _fork(connection, consumer, fds, question[1:], children)
            else:
                connection.send(marshal.dumps(("status", _reap(question[1], children))))
        except (BrokenPipeError, ConnectionResetError):
            break  # the consumer was interrupted, and has closed the connection
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _fork(
    connection: socket.socket, consumer: int, fds: list[int], question: tuple[list[str], list[str]], children: set[int]
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
            child.open_and_serve(socket.socket(fileno=sock), consumer, dump, surround=_surround)

        pid = child.fork(run)
        children.add(pid)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(connection, [marshal.dumps(("forked", pid))], [pidfd])
        os.close(pidfd)
    for fd in fds:
        os.close(fd)


def _surround(folder: str, environment: dict[str, str]) -> None:
    """Take over the working folder and the environment of the consumer."""
    os.chdir(folder)
    for name in os.environ.keys() - environment.keys() - {*threads.LIMITS}:
        del os.environ[name]
    os.environ.update(environment)


def _reap(pid: int, children: set[int]) -> int | None:
    if pid not in children:
        return None
    children.discard(pid)
    return child.exit_status(pid)
