"""Planned: windows of documents whose lengths are known: what each becomes can be counted before any is read."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.op import Indexed, Lengths
from headrace.plan.seed import key

Plan = TypeVar("Plan")
MANY = 1 << 26
"""Documents of which windows are not counted before they are made: a mixture without an end, for one."""
PLANS = 8
"""Windows that are kept planned."""
TABLES = 4
"""Orders of which the number of outputs of each window is kept."""


class WindowPlans(Generic[Plan]):
    """The plan of each window of `size` documents of an order, and how many outputs there are up to each."""

    def __init__(
        self,
        documents: Indexed,
        known: Lengths,
        size: int,
        seed: int,
        make: Callable[[list[int], int, bool], Plan],
        count: Callable[[Plan], int],
        name: tuple[object, ...],
    ) -> None:
        """`make(lengths, seed, last)` plans a window, `count` says how many outputs it has; `name` says what make
        depends on besides."""
        self._known, self._documents, self._size, self._seed = known, documents.length, size, seed
        self._make = make
        self.windows = -(-documents.length // size)
        self.window = lru_cache(maxsize=PLANS)(self._window)
        self.lengths = lru_cache(maxsize=PLANS)(self._lengths)
        # (How many outputs a window has does not depend on the seed that mixes them.)
        self.ends = _tables.ends(
            (*name, known.key, size, documents.length),
            lambda: [count(self.window(number)) for number in range(self.windows)],
        )
        """The first output behind each window."""

    @property
    def outputs(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def find(self, output: int) -> tuple[int, int, Plan]:
        """The window of an output, which one it is there, and the plan."""
        window = self.window_of(output)
        return window, output - (int(self.ends[window - 1]) if window else 0), self.window(window)

    def window_of(self, output: int) -> int:
        return int(np.searchsorted(self.ends, output, side="right"))

    def _lengths(self, number: int) -> list[int]:
        positions = np.arange(number * self._size, min((number + 1) * self._size, self._documents))
        return [int(length) for length in self._known.at(positions)]

    def _window(self, number: int) -> Plan:
        return self._make(self.lengths(number), key(self._seed, "window", number), number == self.windows - 1)


class _Tables:
    """The outputs up to each window, of the orders used last: counting them is what costs."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], NDArray[np.int64]] = {}

    def ends(self, name: tuple[object, ...], counts: Callable[[], Sequence[int]]) -> NDArray[np.int64]:
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = np.cumsum(counts(), dtype=np.int64)
            for old in list(self._kept)[:-TABLES]:
                self._kept.pop(old, None)
        return found


_tables = _Tables()
