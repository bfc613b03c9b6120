"""Repeated input: random access to an input that is read again and again, each turn with other random choices.

Samples are numbered over all turns: where each turn has 10, number 23 is row 3 of turn 2 (`plan.rounds`).
"""

from functools import lru_cache
from typing import Any

from headrace.op import Indexed, Positions
from headrace.plan.rounds import Rounds


class RepeatedInput:
    def __init__(self, inner: Indexed) -> None:
        self._inner, self._again = inner, lru_cache(maxsize=2)(inner.again)
        self.rounds = Rounds(inner.length, (lambda turn: self.turn(turn).length) if inner.varies else None)

    def turn(self, turn: int) -> Indexed:
        """The input as it is read in a turn."""
        return self._again(turn) if turn else self._inner

    def find(self, number: int) -> tuple[Indexed, int]:
        """The input in the turn of a sample, and the row of the sample there."""
        turn, row = self.rounds.find(number)
        return self.turn(turn), row

    def get(self, number: int) -> Any:
        inner, row = self.find(number)
        return inner.get(row)

    def take(self, numbers: Positions, names: tuple[str, ...] | None) -> Any:
        """The table of these rows, where the input has tables."""
        from headrace.tables.merge import merge

        turns, rows = self.rounds.find_all(numbers)

        def taken(turn: int, places: Positions) -> Any:
            below: Any = self.turn(turn).take
            return below(rows[places], names)

        return merge(turns, taken)

    def tokens(self, turn: int, rows: Positions) -> Positions:
        """How many tokens the samples in these rows of a turn have, where that is known."""
        known = self.turn(turn).lengths
        assert known is not None
        return known.at(rows)
