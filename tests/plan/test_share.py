"""The details of Share that law 1 does not state: which sizes, which fillers, which step."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.share import RankBatch, Share, deal


def sizes(share: Share) -> list[int]:
    return [len(share.block(step).positions()) for step in range(share.steps)]


def by_rank(length: int, batch: int, ranks: int) -> list[list[int]]:
    return [sizes(Share(length, batch, ranks, rank)) for rank in range(ranks)]


def test_one_rank_has_a_short_last_batch() -> None:
    assert sizes(Share(10, 4)) == [4, 4, 2]
    assert Share(10, 4).block(2).positions() == [8, 9]


def test_ranks_take_whole_batches_in_turn() -> None:
    assert Share(100, 3, ranks=4, rank=2).block(5) == RankBatch((5 * 4 + 2) * 3, (5 * 4 + 2) * 3 + 3)


def test_a_remainder_of_at_least_one_each_is_one_more_step() -> None:
    assert by_rank(3 * 4 + 7, 4, 3) == [[4, 3], [4, 2], [4, 2]]


def test_a_smaller_remainder_is_dealt_over_two_steps_with_the_last_full_one() -> None:
    # 2 full steps of 3 x 4, and 1 over: 13 samples in two halves.
    assert by_rank(25, 4, 3) == [[4, 3, 2], [4, 2, 2], [4, 2, 2]]


def test_a_smaller_remainder_of_batches_of_one_makes_some_batches_two() -> None:
    assert by_rank(3 * 2 + 2, 1, 3) == [[1, 2], [1, 2], [1, 1]]


def test_pad_fills_with_the_last_sample_also_where_nothing_real_is_left() -> None:
    blocks = [Share(9, 4, ranks=4, rank=rank, policy="pad").block(0) for rank in range(4)]
    assert [block.positions() for block in blocks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 8, 8, 8], [8, 8, 8, 8]]
    assert [block.mask() for block in blocks][2:] == [[True, False, False, False], [False] * 4]


def test_repeat_fills_from_the_start_of_the_epoch_on_and_on_over_the_ranks() -> None:
    blocks = [Share(3, 4, ranks=3, rank=rank, policy="repeat").block(0) for rank in range(3)]
    assert [block.positions() for block in blocks] == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]
    assert sum(sum(block.mask()) for block in blocks) == 3


def test_repeat_fills_from_position_zero_even_when_the_epoch_continues_later() -> None:
    assert Share(10, 4, policy="repeat", start=7).block(0).positions() == [7, 8, 9, 0]


def test_drop_counts_what_it_leaves_out() -> None:
    assert (Share(23, 4, 2, policy="drop").steps, Share(23, 4, 2, policy="drop").left_out) == (2, 7)
    assert (Share(3, 4, 2, policy="drop").steps, Share(3, 4, 2, policy="drop").left_out) == (0, 3)


@pytest.mark.parametrize("policy", ["short", "pad", "repeat", "drop"])
def test_an_empty_epoch_has_no_steps(policy: Any) -> None:
    assert Share(0, 4, 3, 1, policy).steps == 0
    assert Share(12, 4, 3, 1, policy, start=12).steps == 0


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 6), st.sampled_from(["short", "pad", "repeat", "drop"]))
def test_at_finds_the_first_step_that_is_not_wholly_below_a_position(
    length: int, batch: int, ranks: int, policy: Any
) -> None:
    if policy == "short" and length < ranks:
        return
    share = Share(length, batch, ranks, 0, policy)
    for position in range(length + 1):
        step, below = share.at(position)
        wanted = next((s for s in range(share.steps) if share.delivered(s + 1) > position), share.steps)
        assert step == wanted
        assert below == (position - share.delivered(step) if step < share.steps else 0)


def test_at_is_immediate_for_a_trillion_samples() -> None:
    share = Share(10**12 + 1, 32, 10**5, 5)
    assert share.at(share.delivered(200_000) + 9) == (200_000, 9)
    assert share.at(10**12 + 1) == (share.steps, 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"batch": 0}, "batch=0: give an int of at least 1"),
        ({"length": -1}, "length=-1"),
        ({"length": 2.5}, "length=2.5: give an int"),
        ({"ranks": True}, "ranks=True"),
        ({"rank": 2, "ranks": 2}, "one of 0..1"),
        ({"start": 11}, "beyond the length 10"),
        ({"policy": "truncate"}, "'short', 'pad', 'repeat', 'drop'"),
    ],
)
def test_wrong_options_are_refused_with_what_to_write(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        Share(**{"length": 10, "batch": 2, **wrong})


def test_steps_and_positions_outside_the_epoch_are_refused() -> None:
    share = Share(10, 2, start=4)
    for step in (-1, 3):
        with pytest.raises(IndexError, match="3 steps"):
            share.block(step)
    for steps in (-1, 4):
        with pytest.raises(IndexError, match="3 steps"):
            share.delivered(steps)
    for position in (3, 11):
        with pytest.raises(BadOption, match="from 4 to 10"):
            share.at(position)
    with pytest.raises(BadOption, match="rank must be"):
        deal(10, 2, 2)


def test_a_share_travels_by_pickle() -> None:
    share = Share(25, 4, 3, 1)
    again = pickle.loads(pickle.dumps(share))
    assert again == share
    assert [again.block(s) for s in range(3)] == [share.block(s) for s in range(3)]
