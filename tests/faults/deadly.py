"""Samples that end badly, for workers to meet. Workers import this file, so it imports next to nothing.

Each function stands for the sample at position `BAD` of a data set of `SIZE`; the others are plain numbers.
"""

import ctypes
import faulthandler
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

SIZE = 24
BAD = 13


class Numbers:
    """A map-style dataset with one bad sample."""

    def __init__(self, bad: Callable[[], Any] | None = None, size: int = SIZE) -> None:
        self.bad = bad
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.size:
            raise IndexError(i)
        return i if i != BAD or self.bad is None else self.bad()


def raises() -> Any:
    raise KeyError("a bad sample")


def _quietly() -> None:
    """A forked worker has pytest's fault handler; and nobody wants a core."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def segfault() -> Any:
    _quietly()
    return ctypes.string_at(0)


def abort() -> Any:
    _quietly()
    os.abort()


def exits_with_0() -> Any:
    os._exit(0)


def exits_with_3() -> Any:
    os._exit(3)


def ends_with_the_bad_one(batch: list[Any]) -> list[Any]:
    if BAD in batch:
        os._exit(3)
    return batch


def is_number(x: Any) -> bool:
    return isinstance(x, int)


def calls_sys_exit() -> Any:
    sys.exit(5)


def interrupts_itself() -> Any:
    raise KeyboardInterrupt


class GivenUp(BaseException):
    """Not an Exception."""


def gives_up() -> Any:
    raise GivenUp("enough")


class NotPickled:
    def __reduce__(self) -> Any:
        raise ValueError("not to be pickled")


class DeadlyToPickle:
    def __reduce__(self) -> Any:
        os._exit(3)


class NotUnpickled:
    def __reduce__(self) -> Any:
        return _cannot_be_opened, ()


def _cannot_be_opened() -> Any:
    raise ValueError("not to be opened")


def little_memory(number: int) -> None:
    """A worker_init after which 96 MB more are all there is."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 96 * 2**20,) * 2)


def takes_all_memory() -> Any:
    return bytearray(2**31)


def leaves_no_room_for_its_result() -> Any:
    return bytearray(60 * 2**20)


def closes_its_socket() -> Any:
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                os.close(int(fd))
        except OSError:  # the descriptor of the listing itself
            continue
    return BAD


def hangs_for_ever() -> Any:
    while True:
        time.sleep(3600)


class HangsOnce:
    """Hangs the first time, in whichever process that is."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return BAD
        return hangs_for_ever()


class TellsAndHangs:
    """Says through a named pipe that it is inside."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        return tells_and_hangs(self.path)


def tells_and_hangs(path: str) -> Any:
    with open(path, "wb") as pipe:
        pipe.write(b"yes")
    while True:
        time.sleep(3600)


def init_raises(number: int) -> None:
    raise KeyError("a bad worker_init")


def init_exits(number: int) -> None:
    os._exit(4)


def init_calls_sys_exit(number: int) -> None:
    sys.exit(4)
