"""Same node: an actor on the consumer's node writes its results straight into slots of the consumer's.

The consumer lends a slot with a ticket, as it does to a worker process, by naming the path of its descriptor
(`/proc/PID/fd/N`) and the file behind it. An actor that cannot open the path, or finds another file there (in another
container the same number is another process), answers through the object store, as from another node.
"""

import os
from typing import Any

from headrace.memory.arena import MappedSlot, Slot

KEPT = 16
"""Slots that an actor keeps mapped: more than it is lent at a time."""
SlotAddress = tuple[Any, ...]


def slot_address(slot: Slot) -> SlotAddress:
    """The number of a slot, the path of its descriptor, and the device and inode of the file behind it."""
    file = os.fstat(slot.fd)
    return slot.number, f"/proc/{os.getpid()}/fd/{slot.fd}", file.st_dev, file.st_ino


class MappedSlots:
    """Slots of the consumer, mapped in this actor."""

    def __init__(self) -> None:
        self._mapped: dict[int, MappedSlot] = {}
        """By number, the one used last at the end."""

    def find(self, address: SlotAddress) -> MappedSlot | None:
        """The slot with this address; None if it cannot be reached from here."""
        number, path, *file = address
        found = self._mapped.pop(number, None) or _opened(path, file)
        if found is not None:
            self._mapped[number] = found
            if len(self._mapped) > KEPT:
                del self._mapped[next(iter(self._mapped))]
        return found


def _opened(path: str, file: list[int]) -> MappedSlot | None:
    try:
        if not _is(os.stat(path), file):
            return None  # and opening it might have consequences
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if not _is(os.fstat(fd), file):
        os.close(fd)
        return None
    return MappedSlot(fd)


def _is(found: os.stat_result, file: list[int]) -> bool:
    return [found.st_dev, found.st_ino] == file
