"""Stacks: the Python stack of a worker process at this moment, however stuck it is.

Each worker registers `faulthandler` on a signal, with a memory file that it shares with the consumer as the place to
write to. The dump is written by the signal handler itself, so it works in a loop that never comes back to Python.
"""

import contextlib
import os
import signal
import time

from headrace.engine.wire.packets import readable
from headrace.tracebacks import short_dump

DEADLINE = 0.5
STEP = 0.005


def stack_of(pidfd: int, dump: int) -> str:
    """The user's part of the Python stack of the process behind `pidfd`, which writes it to the file `dump`."""
    before = os.fstat(dump).st_size
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGUSR2)
    # The writer is a signal handler in another process: there is no event for it, only a file that stops growing.
    until = time.monotonic() + DEADLINE
    size = before
    while time.monotonic() < until:
        if readable(pidfd, STEP):
            return "the process has ended"
        now = os.fstat(dump).st_size
        if now > before and now == size:
            break
        size = now
    text = os.pread(dump, size - before, before).decode(errors="replace")
    return (
        short_dump(text)
        if text
        else "no answer: the process does not handle signals (it may be in uninterruptible sleep)"
    )
