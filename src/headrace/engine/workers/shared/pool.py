"""Shared pool: one set of workers for the loaders of several processes on one machine.

    with SharedPool(workers=4, consumers=2) as pool:
        start_two_processes(str(pool))          # an address: hand it over however you like
    ...
    Loader(pipe, pool=address, world=World(rank, 2))   # in each of them: its own share, decoded by the same workers

With `same=True` all consumers get the same stream, each at its own pace, and every batch is made once; nobody runs more
than `skew` tickets ahead of the slowest. A consumer that ends, dies or leaves the epoch holds nobody up.

The pool lives as long as the process that has started it, or until `close()`. Its socket lies in a folder that only
this user can enter.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

from headrace.engine.workers.process.start import _python, signals_wait
from headrace.engine.workers.shared import channel as channel
from headrace.engine.workers.shared.accounts import PoolSettings
from headrace.errors import BadOption

ENDING = 5.0
"""Seconds for the server to end its workers."""


class Joined:
    """A pool that somebody else has started."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            settings = PoolSettings(**json.loads((Path(self.path) / "settings").read_text()))
        except OSError as error:
            raise BadOption(f"there is no shared pool at {self.path} ({error.strerror}); start one first") from None
        self.workers = settings.workers
        self.consumers = settings.consumers
        self.same = settings.same

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, workers={self.workers}, same={self.same})"

    def __reduce__(self) -> Any:
        return Joined, (self.path,)

    def stats(self) -> dict[str, Any]:
        """What the server counts: tickets run and shared, what is kept for slower consumers, pids of the workers."""
        counted: dict[str, Any] = channel.ask(self.path, channel.COUNT)
        return counted


def joined(pool: Any) -> Joined:
    """The pool that a loader was given, or that has this address."""
    if isinstance(pool, Joined):
        return pool
    if isinstance(pool, str | os.PathLike):
        return Joined(pool)
    raise BadOption(f"pool= takes a SharedPool or its address, not {type(pool).__name__}")


class SharedPool(Joined):
    """A pool that this process has started.

    `consumers` is how many are expected: what comes first is kept until they are there, for `wait` seconds at most.
    """

    def __init__(
        self, workers: int, *, consumers: int = 1, same: bool = False, skew: int | None = None, wait: float = 120.0
    ) -> None:
        if not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
            raise BadOption("a shared pool needs Linux (5.3 or later); kind='thread' runs the same pipe in threads")
        for name, value in (("workers", workers), ("consumers", consumers), ("skew", 1 if skew is None else skew)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadOption(f"{name} must be a whole number >= 1, not {value!r}")
        if not wait >= 0:
            raise BadOption(f"wait must be a number of seconds >= 0, not {wait!r}")
        settings = PoolSettings(workers, consumers, bool(same), 8 * workers if skew is None else skew, float(wait))
        folder = tempfile.mkdtemp(prefix="headrace-pool-")  # only its owner can enter
        (Path(folder) / "settings").write_text(json.dumps(settings._asdict()))
        ours, theirs = socket.socketpair()
        try:
            server = _start(folder, theirs.fileno(), settings)
        except BaseException:
            ours.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
        self._closing = weakref.finalize(self, _end, os.getpid(), folder, ours, server)
        super().__init__(folder)

    def close(self) -> None:
        """End the workers. Loaders that still use them get an error."""
        self._closing()

    def __enter__(self) -> "SharedPool":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _start(folder: str, control: int, settings: PoolSettings) -> "subprocess.Popen[bytes]":
    starter = os.pidfd_open(os.getpid())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, signals_wait():
            try:
                listener.bind(os.path.join(folder, channel.SOCKET))
            except OSError as error:
                raise BadOption(f"no socket can be made in {folder} ({error}); set TMPDIR to a shorter path") from None
            listener.listen(128)
            fds = (listener.fileno(), starter, control)
            call = f"from headrace.engine.workers.shared.server import main; main{(folder, *fds, tuple(settings))!r}"
            return subprocess.Popen(_python(call), pass_fds=fds, stdin=subprocess.DEVNULL)
    finally:
        os.close(starter)


def _end(owner: int, folder: str, control: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    if os.getpid() != owner:
        return  # a forked copy: the pool belongs to the parent
    control.close()
    try:
        server.wait(ENDING)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(folder, ignore_errors=True)
