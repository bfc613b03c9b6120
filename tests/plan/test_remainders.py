"""Sharing by remainders: every position once, equal steps, and steps that do not depend on the number of ranks."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.parts import Parts
from headrace.plan.share import EndPolicy, Share

POLICIES: list[EndPolicy] = ["short", "pad", "repeat", "drop"]


def jobs(length: int, batch: int, ranks: int, policy: EndPolicy, start: int = 0) -> list[Share]:
    try:
        return [Share(length, batch, ranks, rank, policy, start, by_remainder=True) for rank in range(ranks)]
    except BadOption:  # too few samples for so many ranks
        assume(False)
        raise


@given(st.integers(0, 200), st.integers(1, 7), st.integers(1, 9), st.sampled_from(POLICIES), st.data())
def test_shares_are_disjoint_and_complete_and_steps_are_equal(
    length: int, batch: int, ranks: int, policy: EndPolicy, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, length))
    job = jobs(length, batch, ranks, policy, start)
    assert len({rank.steps for rank in job}) == 1
    seen: list[int] = []
    for step in range(job[0].steps):
        blocks = [rank.block(step) for rank in job]
        sizes = [len(block.positions()) for block in blocks]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        assert policy == "short" or set(sizes) == {batch}
        real = sorted(p for block in blocks for p in block.real)
        assert real == list(range(job[0].delivered(step), job[0].delivered(step + 1)))
        assert all(p % ranks == rank for rank, block in enumerate(blocks) for p in block.real)
        assert all(sum(block.mask()) == len(block.real) for block in blocks)
        assert all(0 <= p < length for block in blocks for p in block.positions()[len(block.real) :])
        seen += real
    assert seen == list(range(start, length - job[0].left_out))
    assert policy == "drop" or not job[0].left_out


@given(st.integers(1, 40), st.integers(0, 30))
def test_a_step_holds_the_same_positions_for_any_number_of_ranks(batches: int, start: int) -> None:
    length = start + 24 * batches
    steps = {
        ranks: [
            sorted(p for rank in jobs(length, 24 // ranks, ranks, "short", start) for p in rank.block(step).real)
            for step in range(batches)
        ]
        for ranks in (1, 2, 3, 4, 6, 8, 12)
    }
    assert all(found == steps[1] for found in steps.values())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 16])
@pytest.mark.parametrize("start", [0, 1000])
def test_a_rank_reads_only_the_units_of_its_parts(ranks: int, start: int) -> None:
    order = Parts(np.cumsum(np.full(960, 20)), line=1, key=2)
    read = 0
    for job in jobs(order.length, 48 // ranks, ranks, "short", start):
        mine = np.concatenate([job.block(step).positions() for step in range(job.steps)])
        read += len(np.unique(order(mine) // 20))
    assert read == 960


def test_fillers_of_a_step_differ_from_rank_to_rank() -> None:
    job = jobs(10, 4, 3, "repeat")
    assert [rank.block(0).positions() for rank in job] == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    assert [rank.block(0).positions() for rank in jobs(10, 4, 3, "pad")] == [[0, 3, 6, 9], [1, 4, 7, 9], [2, 5, 8, 9]]
