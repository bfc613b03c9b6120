"""Rounds: which turn through a source a sample lies in, against a loop that counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.rounds import Rounds


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any), st.data())
def test_turns_of_any_length_are_found_in_any_order(lengths: list[int], data: st.DataObject) -> None:
    every = [(turn, row) for turn, length in enumerate(lengths) for row in range(length)]
    asked: list[int] = []

    def length_of(turn: int) -> int:
        asked.append(turn)
        return lengths[turn]

    rounds = Rounds(lengths[0], length_of)
    for number in data.draw(st.lists(st.integers(0, len(every) - 1), max_size=5)):
        assert rounds.find(number) == every[number]
    turns, rows = rounds.find_all(np.arange(len(every)))
    assert list(zip(turns.tolist(), rows.tolist(), strict=True)) == every
    assert [rounds.length(turn) for turn in range(len(lengths))] == lengths
    assert rounds.total(0) == 0
    assert rounds.total(len(lengths)) == len(every)
    assert asked == list(range(1, len(lengths))), "each is counted once"


@given(st.integers(1, 50), st.integers(0, 10**15))
def test_turns_of_one_length_are_a_division(length: int, number: int) -> None:
    rounds = Rounds(length)
    assert rounds.find(number) == divmod(number, length)
    turns, rows = rounds.find_all(np.array([number]))
    assert (int(turns[0]), int(rows[0])) == divmod(number, length)
    assert rounds.length(7) == length


def test_a_source_that_gives_nothing_any_more_is_refused() -> None:
    with pytest.raises(BadOption, match="no sample in 1000 turns"):
        Rounds(3, lambda turn: 0).find(3)
