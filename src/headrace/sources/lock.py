"""Lock: one process at a time, by the name of a file.

The kernel holds the lock (`flock`) and releases it when its owner dies, so a lock file that is left behind locks
nothing. The file holds the owner's process number, for messages. A thread of its own waits in one blocking call, which
is abandoned at the deadline; nothing polls.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hold(path: str, timeout: float) -> Iterator[None]:
    """Hold the lock named `path`; TimeoutError if another process keeps it longer than `timeout` seconds."""
    fd = acquire(path, timeout)
    try:
        yield
    finally:
        _remove(fd, path)


def acquire(path: str, timeout: float) -> int:
    """A locked descriptor of the file `path`, which now holds the number of this process."""
    fd = open_locked(path, timeout)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    except BaseException:
        release(fd)
        raise
    return fd


def open_locked(path: str, timeout: float, lock: Callable[[int, int], None] = fcntl.flock, mode: int = 0o644) -> int:
    """A locked descriptor of the file `path`, which is created if need be.

    `lock` is fcntl.flock, or fcntl.lockf where children that the holder has forked must not keep the lock.
    """
    deadline = time.monotonic() + timeout
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        _wait(fd, path, deadline, lock)
        if _is_same_file(fd, path):
            return fd
        release(fd)


def sweep(path: str) -> bool:
    """Remove a lock file unless a process holds it; whether it is gone."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    _remove(fd, path)
    return True


def _remove(fd: int, path: str) -> None:
    """Remove a lock file while it is held: a process that waits for it sees that its name is gone, and starts again."""
    if _is_same_file(fd, path):
        os.unlink(path)
    release(fd)


def release(fd: int) -> None:
    # Unlocked, not only closed: a forked child may hold a copy of the descriptor.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def owner(path: str) -> str:
    """The process that holds a lock, as text."""
    try:
        with open(path) as file:
            return file.read(32) or "?"
    except OSError:
        return "?"


def _is_same_file(fd: int, path: str) -> bool:
    """Whether the open file still has this name: another process may have removed or replaced it."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def _wait(fd: int, path: str, deadline: float, lock: Callable[[int, int], None]) -> None:
    """Lock `fd`, or close it and raise TimeoutError."""
    try:
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    turn = threading.Lock()
    got = threading.Event()
    given_up = False

    def block() -> None:
        lock(fd, fcntl.LOCK_EX)
        with turn:
            if given_up:
                release(fd)
            else:
                got.set()

    threading.Thread(target=block, name="headrace-lock", daemon=True).start()
    try:
        got.wait(max(0.0, deadline - time.monotonic()))
    finally:  # also when a signal interrupts the wait
        with turn:
            given_up = not got.is_set()
    if given_up:
        raise TimeoutError(f"{path} is held by process {owner(path)}")
