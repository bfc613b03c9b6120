"""End what ranks leave running in the background: everything in the session that a rank was started in.

A rank (and mpirun) is started as the leader of a session of its own, so its children carry its number as their session
even after it has ended, unless they made a session for themselves: a daemon is left alone, as a shell leaves it alone.
The kernel does not give a number to a new process while a session still has it, so a process with a reaped leader's
number means that nothing of the session is left.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path


def end_sessions(leaders: Iterable[int], proc: Path = Path("/proc")) -> None:
    """SIGKILL for all members of these sessions; returns when a look around finds none."""
    ours = {leader for leader in leaders if _is_ours(leader)}
    if not proc.is_dir():
        for leader in ours:
            _kill(-leader)
        return
    while left := [pid for pid, session in _alive(proc) if session in ours]:
        for pid in left:
            _kill(pid)


def _is_ours(leader: int) -> bool:
    try:
        os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True  # still our child: running, or ended and not yet reaped
    except ChildProcessError:
        pass
    try:
        os.kill(leader, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False  # the number is somebody else's now


def _alive(proc: Path) -> Iterator[tuple[int, int]]:
    """Process and session of all that runs; the dead that wait for their parent do not count."""
    for path in proc.glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError, ValueError):  # ended while we looked
            continue
        if state not in "ZX":
            yield int(path.parent.name), int(session)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
