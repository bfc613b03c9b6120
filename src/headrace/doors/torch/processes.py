"""Worker processes, as torch's iterator shows them: `it._workers` is a list of what looks like `Process`es.

They can be looked at and waited for. The engine starts, replaces and ends them.
"""

import os
import select
from typing import Protocol


class Ends(Protocol):
    """Whoever has started processes, and knows how those ended that have."""

    @property
    def exits(self) -> dict[int, int | None]: ...
    def pids(self) -> list[int]: ...


class ShownProcess:
    """One worker process."""

    __slots__ = ("_ends", "name", "pid")
    daemon = True

    def __init__(self, ends: Ends, number: int, pid: int) -> None:
        self._ends = ends
        self.name = f"DataLoader worker {number}"
        self.pid = pid

    @property
    def ident(self) -> int:
        return self.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._ends.exits.get(self.pid)

    def is_alive(self) -> bool:
        return not self._ended(0)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most so many seconds."""
        self._ended(timeout)

    def _ended(self, seconds: float | None) -> bool:
        # Nobody else can have this number before the engine has noticed the end.
        if self.pid in self._ends.exits:
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


def processes(workers: Ends) -> list[ShownProcess]:
    """The worker processes there are now."""
    return [ShownProcess(workers, number, pid) for number, pid in enumerate(workers.pids())]
