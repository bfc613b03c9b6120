"""End what ranks leave running: every process of this machine with the name of our job in its environment.

Ranks pass their environment on to whatever they start, so daemons are found too. A process is held by its pidfd before
its environment is read: so nobody is ended who was given the number of one that has gone.
Where there is no /proc, nothing is found.
"""

import os
import select
import signal
from pathlib import Path

_SECONDS = 10.0


def end_job(name: str, proc: Path = Path("/proc")) -> None:
    """SIGKILL for all of them; returns when a look around finds none, or when one cannot be ended."""
    while ending := [handle for path in proc.glob("[0-9]*") if (handle := _held(path, name.encode())) is not None]:
        waiting = select.poll()
        for handle in ending:
            waiting.register(handle, select.POLLIN)
            try:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        one_has_ended = waiting.poll(_SECONDS * 1000)
        for handle in ending:
            os.close(handle)
        if not one_has_ended:
            return


def _held(path: Path, name: bytes) -> int | None:
    """A pidfd of the process, if its environment has the name."""
    try:
        handle = os.pidfd_open(int(path.name))
    except OSError:  # it has ended
        return None
    try:
        if name in (path / "environ").read_bytes():
            return handle
    except OSError:  # it has ended, or is somebody else's
        pass
    os.close(handle)
    return None
