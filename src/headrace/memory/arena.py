"""Arena: shared memory in slots, owned by the consumer (the process of the training loop).

The consumer lends one slot with every ticket; the worker writes its result there; the consumer hands views of it to the
user, and the slot is free when the last view has died. Memory is anonymous (memfd), so nothing is left behind whichever
process is killed. Pages are reserved when a slot is made: too little memory is an error here, never a bus error later.
A slot never shrinks.

**When is a slot free?** A lease is a fresh ctypes array over the slot's memory. Every array, tensor and slice of them
that looks into the slot keeps the lease alive, so the callback on its end fires exactly when the last of them is gone.
It may fire in any thread, and inside the loop: it appends to a deque and does nothing else.
"""

import ctypes
import errno
import mmap
import os
import select
import sys
import weakref
from collections import deque
from functools import lru_cache
from typing import Any

from headrace.errors import hint_at_limit

HEADER = 64
"""Bytes at the front of each slot, where a worker notes which sample it is working on (see `workers.child`)."""
SMALLEST = 64 * 1024
GRANULE = 64 * 1024
LINUX = sys.platform == "linux"


class OutOfSharedMemory(OSError):
    """The system has no more shared memory to give."""


def allocate(size: int) -> int:
    """A descriptor of `size` bytes of memory without a name, with all its pages reserved."""
    fd = memfd()
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise OutOfSharedMemory(
                error.errno,
                f"no room for {size / 1e6:.1f} MB of shared memory; make batches smaller, use fewer workers, or raise "
                f"the memory limit (in a container: --shm-size, --memory)",
            ) from None
        raise
    return fd


class Slot:
    """One piece of shared memory."""

    __slots__ = ("_closes_fd", "address", "fd", "map", "number", "size", "spoiled", "table", "view")

    def __init__(self, number: int, fd: int, size: int) -> None:
        self.number = number
        self.fd = fd
        # An epoll object closes the descriptor that it was given when it ends, whatever that is, and runs no Python
        # code for it: an interrupt that arrives in a `__del__` would be swallowed.
        self._closes_fd = select.epoll.fromfd(fd)
        self.size = size
        try:
            self.map = mmap.mmap(fd, size)  # (duplicates the descriptor)
        except OSError as error:
            hint_at_limit(error)
            raise
        self.view = memoryview(self.map)
        self.spoiled = False
        """It must not be used again: user code in a worker still looks into it, or a lost worker may write to it."""
        self.table = (0, 0, 0)
        """Where the table of its samples lies, and which ticket wrote it."""
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))


class MappedSlot:
    """A slot of another process, mapped here. Closes the descriptor."""

    __slots__ = ("address", "header", "map", "size", "table", "view")

    def __init__(self, fd: int) -> None:
        self.size = os.fstat(fd).st_size
        try:
            # One call that maps all pages costs a quarter of the page faults while a batch is written.
            self.map = mmap.mmap(fd, self.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(fd)
        self.view = memoryview(self.map)
        self.header = self.view[:HEADER].cast("q")
        self.table: tuple[int, Any] = (-1, None)
        """The table of samples that was read last, and the ticket that wrote it."""
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))


def map_readonly(fd: int) -> mmap.mmap:
    """All the memory behind a descriptor, mapped for reading."""
    return mmap.mmap(fd, 0, prot=mmap.PROT_READ)


def memfd(name: str = "headrace") -> int:
    """A descriptor of memory that grows as it is written and can be sealed; elsewhere than on Linux, of a temporary
    file that is unlinked at once. `name` is what /proc shows."""
    try:
        if LINUX:
            return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        import tempfile

        fd, path = tempfile.mkstemp(prefix=name)
    except OSError as error:
        hint_at_limit(error)
        raise
    os.unlink(path)
    return fd


_TYPES: dict[int, Any] = {}


def lease_type(size: int) -> Any:
    """The ctypes array type of `size` bytes."""
    # A ctypes array type costs ten times an instance: one per slot size, kept for ever (sizes are few: see `_rounded`).
    found = _TYPES.get(size)
    if found is None:
        found = _TYPES[size] = ctypes.c_char * size
    return found


class _Lease(weakref.ref[Any]):
    """A weak reference to the ctypes array that all views of a slot share."""

    __slots__ = ("slot",)
    slot: Slot


class Arena:
    """All slots of one consumer."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.total = 0
        """Bytes of all slots that exist."""
        self.most = _most_files() // 8
        """Slots that the user may hold: each one costs two descriptors."""
        self.copies = 0
        self.largest = 0
        """Bytes of the largest slot that was asked for, or made by a worker."""
        self._last_number = 0
        self._free: dict[int, list[Slot]] = {}
        self._returned: deque[Any] = deque()
        self._leases: dict[int, _Lease] = {}
        self.retired: list[int] = []
        """Numbers of slots that no worker needs to keep mapped."""

    def lend(self, need: int) -> Slot:
        """A free slot of at least `need` bytes; the one used last, whose pages are warm."""
        if self._returned:
            self._take_back()
        size = _rounded(need)
        if size > self.largest:
            self.largest = size
        stack = self._free.get(size)
        if stack:
            return stack.pop()
        if self.total + size > self.budget:
            self._retire_others(size)
        return self._add(allocate(size), size)

    def adopt(self, fd: int) -> Slot:
        """A slot that a worker made because its result did not fit."""
        size = os.fstat(fd).st_size
        self.largest = max(self.largest, size)
        return self._add(fd, size)

    def _add(self, fd: int, size: int) -> Slot:
        self._last_number += 1
        slot = Slot(self._last_number, fd, size)
        self.total += size
        return slot

    def lease(self, slot: Slot) -> memoryview:
        """The memory of a slot, for views that the user gets; the slot is free again when the last view has died."""
        exporter = lease_type(slot.size).from_buffer(slot.map)
        # The callback is no Python code: an interrupt that arrives in it would be swallowed, and the slot with it.
        lease = _Lease(exporter, self._returned.append)
        lease.slot = slot
        self._leases[slot.number] = lease
        return memoryview(exporter).cast("B")

    def give_back(self, slot: Slot) -> None:
        """Give back a slot of which there are no views."""
        self._returned.append(slot)

    def crowded(self) -> bool:
        """Whether the user holds so many views that the next batch should be copied out instead of lent."""
        if self.total <= self.budget and len(self._leases) <= self.most:
            return False
        self._take_back()
        return len(self._leases) > self.most or sum(lease.slot.size for lease in self._leases.values()) > self.budget

    @property
    def slots(self) -> int:
        self._take_back()
        return len(self._leases) + sum(map(len, self._free.values()))

    def clear(self) -> None:
        """Free all slots of which there are no views; the others are freed with their last view."""
        self._take_back()
        for stack in self._free.values():
            self.total -= sum(slot.size for slot in stack)
        self._free.clear()

    def _take_back(self) -> None:
        returned = self._returned
        while returned:
            slot = returned.popleft()
            if type(slot) is _Lease:
                slot = slot.slot
                del self._leases[slot.number]
            # (Where much is on its way, one that is free is the next to be lent: a new one would be one more.)
            if not slot.spoiled and (self.total <= 2 * self.budget or not self._free.get(slot.size)):
                self._free.setdefault(slot.size, []).append(slot)
            else:
                self._retire(slot)

    def _retire_others(self, wanted: int) -> None:
        """Make room: retire the free slots of other sizes than the one that is wanted."""
        for size in [s for s in self._free if s != wanted]:
            for slot in self._free.pop(size):
                self._retire(slot)

    def _retire(self, slot: Slot) -> None:
        """A slot that will not be used again: its memory is freed with its last view."""
        self.total -= slot.size
        self.retired.append(slot.number)


@lru_cache(maxsize=64)
def _rounded(need: int) -> int:
    """`need`, rounded up so that there are few different sizes: at most an eighth of a power of two is wasted."""
    need = max(need, SMALLEST)
    step = max(GRANULE, 1 << (need.bit_length() - 4))
    return -(-need // step) * step


def overflow_size(need: int) -> int:
    """The size of a slot that a worker makes for a result that did not fit: an eighth more, for the next one."""
    return _rounded(need + need // 8)


def _most_files() -> int:
    """Files that this process may have open."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return 1 << 16
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
