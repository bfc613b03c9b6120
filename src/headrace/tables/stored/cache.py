"""Cache: the units that were read last, in one process, under a budget of bytes.

Room is made before a unit is read, not after. A unit that several threads ask for is read once: the others wait for it.
A unit that is evicted while a thread uses it stays alive, so at most one unit a thread is beyond the budget.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
Unit = TypeVar("Unit", bound=Hashable)


class Cache(Generic[T]):
    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self.loads = 0
        """Units that were read so far."""
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._coming: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()

    def get(self, unit: Unit, estimate: int, load: Callable[[Unit], tuple[T, int]]) -> T:
        """The unit; `load` reads it and says how many bytes it has, `estimate` says it before."""
        while True:
            with self._lock:
                found = self._kept.get(unit)
                if found is not None:
                    self._kept.move_to_end(unit)
                    return found[0]
                coming = self._coming.get(unit)
                if coming is None:
                    self._coming[unit] = threading.Event()
                    self._make_room(estimate)
                    self.used += estimate
                    break
            coming.wait()
        return self._load(unit, estimate, load)

    def has(self, unit: Hashable) -> bool:
        """Whether a unit is here, or on its way."""
        with self._lock:
            return unit in self._kept or unit in self._coming

    def _load(self, unit: Unit, estimate: int, load: Callable[[Unit], tuple[T, int]]) -> T:
        try:
            value, size = load(unit)
        except BaseException:
            with self._lock:
                self.used -= estimate
                self._coming.pop(unit).set()
            raise
        with self._lock:
            self.loads += 1
            self.used += size - estimate
            self._kept[unit] = (value, size)
            self._make_room(0, keep=unit)
            self._coming.pop(unit).set()
        return value

    def _make_room(self, size: int, keep: Hashable = None) -> None:
        for unit in list(self._kept):
            if self.used + size <= self.budget:
                return
            if unit != keep:
                self.used -= self._kept.pop(unit)[1]
