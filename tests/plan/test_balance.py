"""Balance: steps by token budget, and steps dealt to ranks by cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.balance import cut_by_tokens, deal_by_cost

lengths = st.lists(st.integers(1, 50), max_size=80)


def test_budgets_as_they_are_worked_out_by_hand() -> None:
    assert [list(step) for step in cut_by_tokens([5, 3, 8, 2, 2, 6, 4, 1], 16)] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    padded = [list(step) for step in cut_by_tokens([3, 3, 4, 5, 5, 9, 2], 12, padded=True)]
    assert padded == [[0, 1, 2], [3, 4], [5], [6]]


@given(lengths, st.integers(50, 200), st.booleans())
def test_a_step_is_as_long_as_its_budget_allows(sizes: list[int], most: int, padded: bool) -> None:
    def cost(some: list[int]) -> int:
        return max(some) * len(some) if padded else sum(some)

    steps = list(cut_by_tokens(sizes, most, padded))
    assert [p for step in steps for p in step] == list(range(len(sizes)))
    assert all(cost([sizes[p] for p in step]) <= most for step in steps)
    assert all(cost([sizes[p] for p in (*step, step.stop)]) > most for step in steps[:-1])


def test_a_deal_as_it_is_worked_out_by_hand() -> None:
    assert deal_by_cost([25, 9, 64], 2) == [[2], [0, 1]]
    assert deal_by_cost([4, 4, 36, 16, 1], 2) == [[2], [0, 1, 3, 4]]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 8))
def test_every_sample_is_dealt_once_and_no_rank_is_without(costs: list[float], ranks: int) -> None:
    if len(costs) < ranks:
        with pytest.raises(BadOption, match="leaves one of"):
            deal_by_cost(costs, ranks)
        return
    shares = deal_by_cost(costs, ranks)
    assert sorted(i for share in shares for i in share) == list(range(len(costs)))
    assert all(share == sorted(share) and share for share in shares)


def test_ranks_have_nearly_the_same_to_do() -> None:
    sizes = np.random.default_rng(5).lognormal(6, 1, (200, 256)).clip(1, 4096)
    spread = []
    for step in sizes:
        costs = step**2
        shares = deal_by_cost(costs.tolist(), 8)
        loads = [costs[share].sum() for share in shares]
        spread.append(max(loads) / np.mean(loads))
    assert np.mean(spread) <= 1.03


def test_what_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(BadOption, match="sample 1 has 9 tokens"):
        list(cut_by_tokens([1, 9], 8))
