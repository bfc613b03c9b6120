"""Shared pool: one set of workers for the loaders of several processes on one machine.

    with SharedPool(workers=4, consumers=2) as pool:
        start_two_processes(str(pool))          # an address: hand it over however you like
    ...
    Loader(pipe, pool=address, world=World(rank, 2))   # in each of them: its own share, decoded by the same workers

With `same=True` all consumers get the same stream, each at its own pace, and every batch is made once; none runs more
than `skew` tickets ahead of the slowest. A consumer that ends, dies or leaves the epoch does not hold the others up.

The pool lives as long as the process that has started it, or until `close()`. It leaves nothing in any file system.
"""

import os
import re
import secrets
import socket
import subprocess
import weakref
from typing import Any

from headrace.engine.workers.process.start import end, interpreter, signals_held
from headrace.engine.workers.shared import channel as channel
from headrace.engine.workers.shared.accounts import PoolSettings
from headrace.errors import BadOption, WorkerDied, check_whole

ENDING = 5.0
"""Seconds for the server to end its workers."""
_ADDRESS = re.compile(r"headrace-pool-[0-9a-f]+-(\d+)-workers-(\d+)-consumers(-same)?")


class PoolAddress:
    """A pool that another process has started, by its address."""

    def __init__(self, address: str | os.PathLike[str]) -> None:
        self.address = os.fspath(address)
        found = _ADDRESS.fullmatch(self.address)
        if found is None:
            raise BadOption(f"{self.address!r} is not the address of a shared pool: that is what str(pool) gives")
        self.workers = int(found[1])
        self.consumers = int(found[2])
        self.same = found[3] is not None

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def __reduce__(self) -> Any:
        return PoolAddress, (self.address,)

    def stats(self) -> dict[str, Any]:
        """What the server counts: tickets run and shared, what is kept for slower consumers, pids of the workers."""
        return channel.ask(self.address, channel.COUNT)  # type: ignore[no-any-return]


def pool_address(pool: object) -> PoolAddress:
    """The pool= of a loader as a `PoolAddress`, if there is such a pool."""
    if isinstance(pool, PoolAddress):
        return pool
    if isinstance(pool, str | os.PathLike):
        found = PoolAddress(pool)
        try:
            channel.connect(found.address).close()
        except WorkerDied as error:
            raise BadOption(str(error)) from None
        return found
    raise BadOption(f"pool= takes a SharedPool or its address, not {type(pool).__name__}")


class SharedPool(PoolAddress):
    """A pool that this process has started.

    `consumers` is how many are expected: results are kept until all have connected, but not longer than `wait` seconds.
    """

    def __init__(
        self, workers: int, *, consumers: int = 1, same: bool = False, skew: int | None = None, wait: float = 120.0
    ) -> None:
        if not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
            raise BadOption("a shared pool needs Linux (5.3 or later); kind='thread' runs the same pipe in threads")
        for name, value in (("workers", workers), ("consumers", consumers), ("skew", 1 if skew is None else skew)):
            check_whole(name, value, 1)
        if not wait >= 0:
            raise BadOption(f"wait must be a number of seconds >= 0, not {wait!r}")
        settings = PoolSettings(workers, consumers, bool(same), 8 * workers if skew is None else skew, float(wait))
        # (The address says what consumers have to know, so that they need not ask.)
        address = f"headrace-pool-{secrets.token_hex(8)}-{workers}-workers-{consumers}-consumers{'-same' * bool(same)}"
        ours, theirs = socket.socketpair()
        try:
            server = _start(address, theirs.fileno(), settings)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._closing = weakref.finalize(self, _end, os.getpid(), ours, server)
        self.server_pid = server.pid
        super().__init__(address)

    def close(self) -> None:
        """End the workers. Loaders that still use them get an error."""
        self._closing()

    def __enter__(self) -> "SharedPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(address: str, control: int, settings: PoolSettings) -> "subprocess.Popen[bytes]":
    with channel.listen(address) as listener, signals_held():
        return interpreter("shared.server", (listener.fileno(), control), tuple(settings))


def _end(owner: int, control: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    if os.getpid() != owner:
        return  # a forked copy: the pool belongs to the parent
    control.close()
    end(server, ENDING)
