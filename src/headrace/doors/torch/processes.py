"""Worker processes, as torch's iterator shows them: `it._workers` is a list of what looks like `Process`es.

The caller can look at them and wait for them. The engine starts, replaces and ends them.
"""

import os
import select

from headrace.engine.workers.protocol import Workers


class ProcessView:
    """One worker process."""

    __slots__ = ("_all", "ident", "name", "pid")
    daemon = True

    def __init__(self, workers: Workers, number: int, pid: int) -> None:
        self._all = workers
        self.name = f"DataLoader worker {number}"
        self.pid = self.ident = pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._all.exits.get(self.pid)

    def is_alive(self) -> bool:
        return not self._ended(0)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most so many seconds."""
        self._ended(timeout)

    def _ended(self, seconds: float | None) -> bool:
        # (No other process can have this number before the engine has noticed the end.)
        if self.pid in self._all.exits:
            return True
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))
        finally:
            os.close(pidfd)

    def __repr__(self) -> str:
        code = self.exitcode
        return f"<{self.name}, process {self.pid}{'' if code is None else f', ended with {code}'}>"
