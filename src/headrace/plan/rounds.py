"""Rounds: the turns through a source that is read again and again. Samples are numbered over all turns; here is found
in which turn a sample lies, and in which row of that turn.

Most sources have the same number of rows in every turn, and this is a division. Documents that are shuffled and then
packed, bucketed or mixed by tokens make another number of rows in each order: there turns are counted one after the
other, up to the one that is asked for, and the counts are kept.
"""

from bisect import bisect_right
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from headrace.errors import BadOption

if TYPE_CHECKING:
    from headrace.plan.order import Ints

EMPTY = 1000
"""After so many turns in a row without any sample, the source is refused."""


class Rounds:
    """The turns through one source. `length_of(turn)` says how long each is; None: all are as long as the first."""

    def __init__(self, first: int, length_of: Callable[[int], int] | None = None) -> None:
        self._first, self._length_of = first, length_of
        self._ends = [first]
        """How many rows there are up to the end of each turn that was counted."""
        self._lock = Lock()

    def find(self, number: int) -> tuple[int, int]:
        """The turn that a sample lies in, and its row there."""
        if self._length_of is None:
            return divmod(number, self._first)
        self._count(number)
        turn = bisect_right(self._ends, number)
        return turn, number - (self._ends[turn - 1] if turn else 0)

    def find_all(self, numbers: "Ints") -> "tuple[Ints, Ints]":
        """The same for many samples."""
        import numpy as np

        if self._length_of is None:
            return numbers // self._first, numbers % self._first
        self._count(int(numbers.max(initial=0)))
        ends = np.array(self._ends, np.int64)
        turns = np.searchsorted(ends, numbers, side="right")
        return turns, numbers - np.concatenate([[0], ends])[turns]

    def length(self, turn: int) -> int:
        """How many rows a turn has."""
        return self.total(turn + 1) - self.total(turn)

    def total(self, turns: int) -> int:
        """How many rows the first `turns` turns have together."""
        if self._length_of is None:
            return turns * self._first
        with self._lock:
            while len(self._ends) < turns:
                self._count_next()
        return self._ends[turns - 1] if turns else 0

    def _count(self, number: int) -> None:
        """Count turns up to the one that a sample lies in."""
        if number < self._ends[-1]:
            return
        with self._lock:
            while self._ends[-1] <= number:
                self._count_next()
                if len(self._ends) > EMPTY and self._ends[-1] == self._ends[-1 - EMPTY]:
                    raise BadOption(f"a source has given no sample in {EMPTY} turns: it cannot begin again")

    def _count_next(self) -> None:
        assert self._length_of is not None
        self._ends.append(self._ends[-1] + self._length_of(len(self._ends)))
