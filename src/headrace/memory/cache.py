"""UnitCache: memory that several processes fill and read together, a cache whose parts are made once for all of them.

    | magic | token | slots | bytes of a slot | clock |  unit in each slot | last use | what is left |  slot 0 | ...

Each slot holds one *unit* (a number; what it means is the user's business) or none. Whoever needs a unit that is in no
slot takes the slot that was used longest ago and fills it; those first whose unit has been read to its end, if readers
say how much of it they have taken. Who reads and who fills is settled by locks of the kernel on
bytes of the memory's own file: any number may read a slot, or one may fill it, and the locks of a process that dies are
gone with it. A slot says that it holds a unit only when it is filled, so a death in the middle leaves it empty.

The memory has no name and nothing is left of it when the last process is gone. It goes to other processes by fork, or
as a ticket that is redeemed through /proc, as `segment` does. Where the kernel has no such locks (they are Linux's
"open file description" locks) or a ticket cannot be redeemed, a process has slots of its own.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.memory.segment import LINUX, nameless, open_shared

NAME = "headrace-slots"
MAGIC = b"hrslots2"
HEADER = struct.Struct("<8s16sqq")
PAGE = 4096
LOADING = 1 << 40
"""Where the locks of units begin that are being made; those of slots begin at 0."""
_FLOCK = struct.Struct("hhqqixxxx")  # struct flock of 64-bit Linux: type, whence, start, length, pid
SHARED = LINUX and hasattr(fcntl, "F_OFD_SETLK")

Use = Callable[[memoryview], None]
Ints = NDArray[np.int64]


class UnitCache:
    """`count` slots of `size` bytes."""

    def __init__(self, count: int, size: int) -> None:
        size = -(-size // PAGE) * PAGE
        self._setup(_make(count, size), count, size, os.urandom(16))
        HEADER.pack_into(self.memory, 0, MAGIC, self.token, count, size)
        self._units[:] = -1

    def _setup(self, fd: int, count: int, size: int, token: bytes) -> None:
        self.count, self.size, self.token = count, size, token
        self._fd = fd
        self._maker = os.getpid()
        self._data = _data_start(count)
        self.memory = mmap.mmap(fd, self._data + count * size)
        numbers = np.frombuffer(self.memory, np.int64, 1 + 3 * count, HEADER.size)
        self._clock, (self._units, self._used, self._left) = numbers[:1], numbers[1:].reshape(3, count)
        self._locks = _Locks(fd)
        self._seen: dict[int, int] = {}
        """Where units were when they were last looked for."""
        self.made = 0
        """Units that this process has made."""

    def read(self, unit: int, use: Use, make: Use, taken: int = 0, size: int = 0) -> None:
        """Call `use` with the memory of a unit; if it is in no slot, `make` fills one first.

        `taken` of the `size` parts of the unit are taken by this: what has been read to its end goes before the rest.
        """
        while True:
            slot = self._find(unit)
            if slot is not None and self._locks.share(slot):
                try:
                    if self._units[slot] == unit:
                        self._touch(slot)
                        self._count(slot, taken, size)
                        return use(self._slot(slot))
                finally:
                    self._locks.free(slot)
            with self._locks.making(unit):
                if self._find(unit) is None:
                    return self._fill(unit, use, make, taken, size)

    def _find(self, unit: int) -> int | None:
        slot = self._seen.get(unit, 0)
        if self._units[slot] == unit:
            return slot
        found = np.flatnonzero(self._units == unit)
        if not len(found):
            return None
        self._seen[unit] = slot = int(found[0])
        return slot

    def touch(self, units: Iterable[int]) -> set[int]:
        """These units are needed soon: others are put out before them. Gives those that are in no slot."""
        absent = set()
        for unit in units:
            slot = self._find(unit)
            if slot is None:
                absent.add(unit)
            else:
                self._touch(slot)
        return absent

    def where(self, unit: int) -> int:
        """The slot of a unit that is being read."""
        slot = self._find(unit)
        assert slot is not None
        return slot

    def hold(self, slots: Ints, units: Ints) -> bool:
        """Whether these slots (-1: none) hold these units. Where there is a slot for every unit, they stay there."""
        return bool((slots >= 0).all() and (self._units[slots] == units).all())

    def starts(self, slots: Ints) -> Ints:
        """Where these slots begin in `memory`."""
        return self._data + slots * self.size

    def inside(self, address: int) -> int:
        """An address of this process as a place in `memory`."""
        base: int = self._clock.__array_interface__["data"][0] - HEADER.size
        return address - base

    def windows(self, dtype: "np.dtype[Any]") -> NDArray[Any]:
        """`memory` as values of this kind that begin at every byte of it."""
        return np.ndarray((len(self.memory) - dtype.itemsize + 1,), dtype, self.memory, strides=(1,))

    def _fill(self, unit: int, use: Use, make: Use, taken: int, size: int) -> None:
        slot = self._victim()
        try:
            self._units[slot] = -1
            self._reserve(slot)
            memory = self._slot(slot)
            make(memory)
            self.made += 1
            self._touch(slot)
            self._left[slot] = 0
            self._count(slot, taken, size)
            self._units[slot] = unit
            use(memory)
        finally:
            self._locks.free(slot)

    def _victim(self) -> int:
        """The slot that was used longest ago and that nobody reads, of those read to the end if there are; locked."""
        # An empty one first, also if its filler died: so nothing is put out while there is a slot for each unit.
        order = np.lexsort((self._used, self._left > 0, self._units >= 0)).tolist()
        for slot in order:
            if self._locks.own(slot, wait=False):
                return int(slot)
        self._locks.own(order[0], wait=True)
        return int(order[0])

    def _touch(self, slot: int) -> None:
        self._clock[0] += 1  # two at once may get the same time: then either may be put out first
        self._used[slot] = self._clock[0]

    def _count(self, slot: int, taken: int, size: int) -> None:
        # Not exact where two do it at once: then a unit goes a little later, when it was used longest ago.
        self._left[slot] = max(0, (int(self._left[slot]) or size) - taken)

    def _slot(self, slot: int) -> memoryview:
        start = self._data + slot * self.size
        return memoryview(self.memory)[start : start + self.size]

    def _reserve(self, slot: int) -> None:
        """Too little memory is an error here, not a bus error later."""
        try:
            os.posix_fallocate(self._fd, self._data + slot * self.size, self.size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise OSError(
                error.errno, f"no room for {self.size / 1e6:.1f} MB of shared memory more; give a smaller memory="
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.count, self.size, self.token, self._maker, self._fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1


def _data_start(count: int) -> int:
    return -(-(HEADER.size + 8 * (1 + 3 * count)) // PAGE) * PAGE


def _make(count: int, size: int) -> int:
    fd = nameless(NAME)
    os.ftruncate(fd, _data_start(count) + count * size)
    return fd


def _reopened(count: int, size: int, token: bytes, pid: int, number: int) -> UnitCache:
    """Pickle calls this by name: the same slots in another process, or new ones where those cannot be reached."""
    fd = open_shared(pid, number, NAME, MAGIC + token, os.O_RDWR) if SHARED else None
    if fd is None:
        return UnitCache(count, size)  # slots of one's own serve as well, only dearer
    slots = UnitCache.__new__(UnitCache)
    slots._setup(fd, count, size, token)
    return slots


class _Description:
    """An open file description of one thread of one process: the owner of its locks."""

    def __init__(self, fd: int) -> None:
        self.pid = os.getpid()
        self.fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)


class _Locks:
    """Locks on slots and on units that are being made."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mine = threading.local()
        self._one = threading.RLock()
        """Where the kernel has none: one at a time, in this process only."""

    def share(self, slot: int) -> bool:
        return self._lock(fcntl.F_RDLCK, slot, False)

    def own(self, slot: int, wait: bool) -> bool:
        return self._lock(fcntl.F_WRLCK, slot, wait)

    def free(self, slot: int) -> None:
        self._lock(fcntl.F_UNLCK, slot, False)

    @contextlib.contextmanager
    def making(self, unit: int) -> Iterator[None]:
        """Only one process makes a unit; the others wait for it."""
        self.own(LOADING + unit, wait=True)
        try:
            yield
        finally:
            self.free(LOADING + unit)

    def _lock(self, kind: int, byte: int, wait: bool) -> bool:
        if not SHARED:
            return self._alone(kind)
        mine: _Description | None = getattr(self._mine, "description", None)
        if mine is None or mine.pid != os.getpid():
            mine = self._mine.description = _Description(self._fd)
        try:
            fcntl.fcntl(mine.fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _alone(self, kind: int) -> bool:
        if kind == fcntl.F_UNLCK:
            self._one.release()
        else:
            self._one.acquire()
        return True
