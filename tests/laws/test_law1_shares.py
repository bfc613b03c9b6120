"""Law 1: shares are disjoint and complete, and every rank makes the same number of steps.

Small cases are tried one by one; large ones are drawn by hypothesis; the largest is checked by arithmetic on the edges
of the blocks, since nobody can list 10**12 samples.
"""

from itertools import pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.share import EndPolicy, RankBatch, Share, deal
from tests.depth import depth

POLICIES: tuple[EndPolicy, ...] = ("short", "pad", "repeat", "drop")


def world(length: int, batch: int, ranks: int, policy: EndPolicy, start: int = 0) -> list[Share]:
    return [Share(length, batch, ranks, rank, policy, start) for rank in range(ranks)]


def real(block: RankBatch) -> list[int]:
    return [position for position, is_real in zip(block.positions(), block.mask(), strict=True) if is_real]


def shareable(rest: int, ranks: int, policy: EndPolicy) -> bool:
    return policy != "short" or rest == 0 or rest >= ranks


def check_step(blocks: list[RankBatch], policy: EndPolicy, batch: int, length: int) -> None:
    """The rules for the blocks of all ranks at one step."""
    sizes = [len(block.positions()) for block in blocks]
    if policy == "short":
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
        assert max(sizes) <= max(batch, 2)
    else:
        assert set(sizes) == {batch}
    fillers = [position for block in blocks for position in block.positions()[block.stop - block.start :]]
    if policy == "pad":
        assert set(fillers) <= {length - 1}
    elif policy == "repeat":
        assert fillers == [i % length for i in range(len(fillers))]
    else:
        assert fillers == []


def check_epoch(length: int, batch: int, ranks: int, policy: EndPolicy, start: int) -> None:
    shares = world(length, batch, ranks, policy, start)
    assert len({share.steps for share in shares}) == 1
    assert len({share.left_out for share in shares}) == 1
    steps, left_out = shares[0].steps, shares[0].left_out
    seen: list[int] = []
    for step in range(steps):
        assert shares[0].delivered(step) == start + len(seen)
        blocks = [share.block(step) for share in shares]
        check_step(blocks, policy, batch, length)
        for block in blocks:
            seen += real(block)
    assert shares[0].delivered(steps) == start + len(seen)
    # Disjoint, complete, and in order when ranks are read in turn.
    assert seen == list(range(start, length - left_out))
    assert left_out == ((length - start) % (batch * ranks) if policy == "drop" else 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_small_epoch_is_shared_by_the_rules_of_its_policy(policy: EndPolicy) -> None:
    tried = 0
    for length, ranks, batch in product(range(41), range(1, 5), range(1, 6)):
        if shareable(length, ranks, policy):
            check_epoch(length, batch, ranks, policy, 0)
            tried += 1
    assert tried > 700


@pytest.mark.parametrize("policy", POLICIES)
def test_every_small_epoch_continues_by_the_same_rules_from_every_start(policy: EndPolicy) -> None:
    for length, ranks, batch in product((0, 1, 7, 16, 23), range(1, 5), range(1, 6)):
        for start in range(length + 1):
            if shareable(length - start, ranks, policy):
                check_epoch(length, batch, ranks, policy, start)


@pytest.mark.parametrize("policy", POLICIES)
def test_continuing_after_any_step_in_the_same_world_gives_the_blocks_that_were_to_come(policy: EndPolicy) -> None:
    for length, ranks, batch in product(range(0, 41, 3), range(1, 5), range(1, 6)):
        if not shareable(length, ranks, policy):
            continue
        for share in world(length, batch, ranks, policy):
            for done in range(share.steps + 1):
                rest = Share(length, batch, ranks, share.rank, policy, start=share.delivered(done))
                assert [rest.block(s) for s in range(rest.steps)] == [
                    share.block(s) for s in range(done, share.steps)
                ], (length, ranks, batch, done)


@given(
    length=st.integers(0, 3000),
    before=st.tuples(st.integers(1, 40), st.integers(1, 16)),
    after=st.tuples(st.integers(1, 40), st.integers(1, 16)),
    done=st.integers(0, 10**6),
)
def test_a_changed_world_delivers_exactly_what_the_first_one_did_not(
    length: int, before: tuple[int, int], after: tuple[int, int], done: int
) -> None:
    assume(length >= before[1] or length == 0)
    first = world(length, *before, policy="short")
    done %= first[0].steps + 1
    start = first[0].delivered(done)
    assume(shareable(length - start, after[1], "short"))
    second = world(length, *after, policy="short", start=start)
    delivered = [p for step in range(done) for share in first for p in real(share.block(step))]
    delivered += [p for step in range(second[0].steps) for share in second for p in real(share.block(step))]
    assert delivered == list(range(length))


large = st.integers(0, 10**15)


@given(large, st.integers(1, 10**5), st.integers(1, 10**6), st.sampled_from(POLICIES), st.data())
def test_blocks_of_large_epochs_meet_edge_to_edge(
    length: int, batch: int, ranks: int, policy: EndPolicy, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, length))
    assume(shareable(length - start, ranks, policy))
    rank = data.draw(st.integers(0, ranks - 1))
    share = Share(length, batch, ranks, rank, policy, start)
    if not share.steps:
        assert length - start == share.left_out
        return
    last_steps = st.integers(max(0, share.steps - 3), share.steps - 1)
    step = data.draw(st.integers(0, share.steps - 1) | last_steps)
    block = share.block(step)
    low, high = share.delivered(step), share.delivered(step + 1)
    if rank == 0:
        assert block.start == low
    else:
        assert block.start == Share(length, batch, ranks, rank - 1, policy, start).block(step).stop
    if rank == ranks - 1:
        assert block.stop == high
    size = block.stop - block.start
    if policy == "short":
        assert (high - low) // ranks <= size <= -(-(high - low) // ranks)
        assert 1 <= size <= max(batch, 2)
    else:
        assert size + block.filled == batch
    assert share.delivered(share.steps) == length - share.left_out


@pytest.mark.parametrize("policy", depth(["short", "pad"], POLICIES))
@pytest.mark.parametrize("over", depth([99_999], [0, 1, 99_999, 100_000, 3_199_999]))
def test_a_trillion_samples_are_shared_among_a_hundred_thousand_ranks(over: int, policy: EndPolicy) -> None:
    ranks, batch = 10**5, 32
    length = 312_500 * batch * ranks + over
    one = Share(length, batch, ranks, 0, policy)
    tail = range(max(0, one.steps - 2), one.steps)
    blocks = [[share.block(step) for step in tail] for share in world(length, batch, ranks, policy)]
    for place, step in enumerate(tail):
        edges = [block[place] for block in blocks]
        assert edges[0].start == one.delivered(step)
        assert all(left.stop == right.start for left, right in pairwise(edges))
        assert edges[-1].stop == one.delivered(step + 1)
        sizes = {block.stop - block.start + block.filled for block in edges}
        assert sizes == {batch} if policy != "short" else max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
    assert one.delivered(one.steps) + one.left_out == length


@pytest.mark.parametrize(("length", "ranks"), [(1, 2), (3, 4), (99_999, 100_000)])
def test_too_few_samples_for_short_are_refused_with_both_numbers(length: int, ranks: int) -> None:
    with pytest.raises(BadOption, match=rf"{length} samples .* {ranks} ranks .*'pad', 'repeat' or 'drop'"):
        Share(length, 8, ranks, 0)


@given(st.integers(0, 500), st.integers(1, 20))
def test_dealt_items_are_disjoint_and_equal_in_number_and_at_most_ranks_minus_one_are_left(
    length: int, ranks: int
) -> None:
    hands = [deal(length, ranks, rank) for rank in range(ranks)]
    assert {len(hand) for hand in hands} == {length // ranks}
    assert sorted(item for hand in hands for item in hand) == list(range(length // ranks * ranks))
    assert all(item % ranks == rank for rank, hand in enumerate(hands) for item in hand)
