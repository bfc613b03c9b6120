"""UnitCache: a cache in shared memory that several processes fill and read together, each unit made once for all.

    | magic | token | slots | bytes of a slot | clock |  unit in each slot | last use | what is left |  slot 0 | ...

Each slot holds one *unit* (a number; its meaning is up to the caller) or none. A process that needs a unit in no slot
takes the slot that was used longest ago and fills it; before those, a slot whose unit has been read to its end, if
readers say how much they have taken. Locks of the kernel on bytes of the memory's own file decide who may read and who
may fill: any number of readers, or one process that fills; the locks of a process that dies are gone with it. A slot is
marked with its unit only when it is filled, so a death in the middle leaves it empty.

The memory has no name and nothing is left of it when the last process is gone. It goes to other processes by fork, or
by an address in /proc, as in `segment`. Where the kernel has no such locks (they are Linux's "open file description"
locks) or the address cannot be opened, a process makes a cache of its own.
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

from headrace.memory.arena import LINUX, memfd
from headrace.memory.segment import open_shared

NAME = "headrace-slots"
MAGIC = b"hrslots2"
HEADER = struct.Struct("<8s16sqq")
PAGE = 4096
MAKING = 1 << 40
"""Unit u is being made: lock on byte MAKING + u. Slot s is read or filled: lock on byte s."""
_FLOCK = struct.Struct("hhqqixxxx")  # struct flock of 64-bit Linux: type, whence, start, length, pid
SHARED = LINUX and hasattr(fcntl, "F_OFD_SETLK")

Use = Callable[[memoryview], None]
Ints = NDArray[np.int64]


class UnitCache:
    """`count` slots of `size` bytes."""

    def __init__(self, count: int, size: int) -> None:
        size = -(-size // PAGE) * PAGE
        fd = memfd(NAME)
        os.ftruncate(fd, _data_start(count) + count * size)
        self._setup(fd, count, size, os.urandom(16))
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
        """The slot that a unit was last found in: looked at first."""
        self.made = 0
        """Units that this process has made."""

    def read(self, unit: int, use: Use, make: Use, taken: int = 0, size: int = 0) -> None:
        """Call `use` with the memory of a unit; if it is in no slot, `make` fills one first.

        This takes `taken` of the `size` parts of the unit: when all are taken, its slot is filled anew before others.
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
        """These units are needed soon: others are evicted before them. Returns those that are in no slot."""
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
        """Whether these slots (-1: none) hold these units. Where there is a slot for every unit, none is evicted."""
        return bool((slots >= 0).all() and (self._units[slots] == units).all())

    def starts(self, slots: Ints) -> Ints:
        """Where these slots begin in `memory`."""
        return self._data + slots * self.size

    def inside(self, address: int) -> int:
        """An address of this process as an offset into `memory`."""
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
        """The slot to fill next, locked: an empty one, else one read to its end, else the one used longest ago; slots
        that are being read are passed over."""
        # Empty ones first, also those whose filler died: nothing is evicted while there is a slot for each unit.
        order = np.lexsort((self._used, self._left > 0, self._units >= 0)).tolist()
        for slot in order:
            if self._locks.exclusive(slot, wait=False):
                return int(slot)
        self._locks.exclusive(order[0], wait=True)
        return int(order[0])

    def _touch(self, slot: int) -> None:
        self._clock[0] += 1  # two processes at once may get the same time: then either slot may be evicted first
        self._used[slot] = self._clock[0]

    def _count(self, slot: int, taken: int, size: int) -> None:
        # Not exact where two processes do it at once: then a unit is evicted a little later, by its last use.
        self._left[slot] = max(0, (int(self._left[slot]) or size) - taken)

    def _slot(self, slot: int) -> memoryview:
        start = self._data + slot * self.size
        return memoryview(self.memory)[start : start + self.size]

    def _reserve(self, slot: int) -> None:
        """Reserve the pages of a slot: too little memory is an error here, not a bus error later."""
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


def _reopened(count: int, size: int, token: bytes, pid: int, number: int) -> UnitCache:
    """Pickle calls this by name: the same cache in another process, or a new one where that cannot be opened."""
    fd = open_shared(pid, number, NAME, MAGIC + token, os.O_RDWR) if SHARED else None
    if fd is None:
        return UnitCache(count, size)  # works as well, only units are made more often
    cache = UnitCache.__new__(UnitCache)
    cache._setup(fd, count, size, token)
    return cache


class _Description:
    """An open file description of one thread of one process: locks belong to it."""

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
        self._thread = threading.local()
        self._process_lock = threading.RLock()
        """Where the kernel has no such locks: one thread at a time, in this process only."""

    def share(self, slot: int) -> bool:
        """Lock a slot for reading, together with other readers; False if it is being filled."""
        return self._lock(fcntl.F_RDLCK, slot, False)

    def exclusive(self, slot: int, wait: bool) -> bool:
        """Lock a slot for filling it; False if it is in use, unless `wait`."""
        return self._lock(fcntl.F_WRLCK, slot, wait)

    def free(self, slot: int) -> None:
        self._lock(fcntl.F_UNLCK, slot, False)

    @contextlib.contextmanager
    def making(self, unit: int) -> Iterator[None]:
        """Only one process makes a unit; the others wait for it."""
        self.exclusive(MAKING + unit, wait=True)
        try:
            yield
        finally:
            self.free(MAKING + unit)

    def _lock(self, kind: int, byte: int, wait: bool) -> bool:
        if not SHARED:
            return self._lock_process(kind)
        owner: _Description | None = getattr(self._thread, "description", None)
        if owner is None or owner.pid != os.getpid():
            owner = self._thread.description = _Description(self._fd)
        try:
            fcntl.fcntl(owner.fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, byte, 1, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _lock_process(self, kind: int) -> bool:
        if kind == fcntl.F_UNLCK:
            self._process_lock.release()
        else:
            self._process_lock.acquire()
        return True
