"""Balance: global steps dealt by cost hold the same samples on any number of ranks, and resume in any world."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, NoLength
from headrace.ops.text.balance import Balance
from headrace.plan.balance import StepPlan, deal_by_cost
from tests.depth import depth

EXAMPLES = {"Balance": lambda of, at: Pipe.of(lognormal(40)).sized(sizes(40)).balance(rows=8, window=16)}


def sizes(count: int, seed: int = 0) -> list[int]:
    drawn = np.random.default_rng(seed).lognormal(6, 1, count)
    return np.clip(drawn, 1, 4096).astype(int).tolist()


def lognormal(count: int) -> list[Any]:
    return [(i, n) for i, n in enumerate(sizes(count))]


def pipe(count: int = 1000, **options: Any) -> Pipe[Any]:
    return Pipe.of(lognormal(count)).sized(sizes(count)).shuffle().balance(**options)


def job(made: Pipe[Any], ranks: int, steps: int, state: str | None = None, ends: Any = "short") -> tuple[Any, str]:
    """What each rank gets at each step, and where the job stands then."""
    delivered, states = [], []
    for rank in range(ranks):
        with Loader(made, seed=3, world=World(rank=rank, ranks=ranks), ends=ends) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            delivered.append([list(batch) for batch in islice(iter(loader), steps)])
            states.append(json.dumps(loader.state_dict()))
    assert len(set(states)) == 1
    return list(zip(*delivered, strict=True)), states[0]


def together(steps: Any) -> list[list[Any]]:
    return [sorted(sample for share in step for sample in share) for step in steps]


@pytest.mark.parametrize("options", [{"rows": 64}, {"tokens": 40_000}, {"tokens": 90_000, "padded": True}])
def test_a_step_holds_the_same_samples_on_any_number_of_ranks(options: Any) -> None:
    whole = together(job(pipe(**options, window=256), 1, 1000)[0])
    assert sorted(sample for step in whole for sample in step) == lognormal(1000)
    for ranks in (2, 3, 8):
        steps, _ = job(pipe(**options, window=256), ranks, 1000)
        assert all(share for step in steps for share in step)
        assert together(steps) == whole
    first, state = job(pipe(**options, window=256), 2, 5)
    rest, _ = job(pipe(**options, window=256), 8, 1000, state)
    assert together(first) + together(rest) == whole


def test_steps_and_deals_are_those_of_the_specification() -> None:
    lengths = [5, 3, 8, 2, 2, 6, 4, 1]
    made = Pipe.of(list(enumerate(lengths))).sized(lengths).balance(tokens=16, like=False)
    two, _ = job(made, 2, 10)
    assert [[[i for i, _ in share] for share in step] for step in two] == [[[2], [0, 1]], [[5], [3, 4, 6, 7]]]


def test_the_cost_may_be_any_function_of_the_lengths() -> None:
    steps, _ = job(pipe(256, rows=64, cost=np.ones_like), 4, 10)
    assert {len(share) for step in steps for share in step} == {16}


def test_rows_that_were_packed_are_dealt_by_what_attention_costs() -> None:
    of = [np.full(n, 1) for n in sizes(600)]
    rows = Pipe.of(of).sized([len(d) for d in of]).pack(4096, how="fit", window=200).balance(rows=16, like=False)
    steps, _ = job(rows, 4, 3)
    for step in steps:
        costs = [sum(int(np.sum(np.bincount(row["documents"])[1:] ** 2)) for row in share) for share in step]
        assert max(costs) / np.mean(costs) < 1.25


def test_the_end_of_an_epoch_leaves_no_rank_without_samples() -> None:
    steps, _ = job(pipe(130, rows=64, window=64), 4, 10)
    assert [sum(map(len, step)) for step in steps] == [64, 66]
    dropped, _ = job(pipe(130, rows=64, window=64), 4, 10, ends="drop")
    assert [sum(map(len, step)) for step in dropped] == [64, 64]
    with pytest.raises(BadOption, match="cannot be shared"):
        job(pipe(3, rows=64), 4, 10)


def test_lognormal_lengths_on_eight_ranks_are_balanced_and_hardly_padded() -> None:
    """The figures of the issue: the worst rank is 3 % above the mean, 2 % of tokens are padding."""
    count, ranks, steps = 256, 8, depth(400, 100_000)
    plan = StepPlan(rows=count)
    worst, real, filled, made = [], 0, 0, 0
    chance = np.random.default_rng(5)
    while made < steps:
        lengths = np.clip(chance.lognormal(6, 1, plan.window), 1, 4096).astype(int)
        for step in plan.window_steps(lengths.tolist(), made):
            mine = lengths[step]
            shares = deal_by_cost((mine * mine).tolist(), ranks)
            costs = [int((mine[share] ** 2).sum()) for share in shares]
            worst.append(max(costs) / (sum(costs) / ranks))
            real += int(mine.sum())
            filled += sum(int(mine[share].max()) * len(share) for share in shares)
            made += 1
    assert np.mean(worst) <= 1.03
    assert 1 - real / filled <= 0.02


def test_lengths_that_are_not_known_and_bad_plans_are_refused() -> None:
    with pytest.raises(BadOption, match="not known here"):
        Pipe.of([1]).balance(rows=4)
    with pytest.raises(BadOption, match="rows= or tokens="):
        pipe()
    with pytest.raises(BadOption, match="rows=0"):
        pipe(rows=0)
    with pytest.raises(BadOption, match="at most 5"):
        list(Loader(pipe(tokens=5)))
    with pytest.raises(NoLength):
        len(Loader(pipe(rows=64)))
    with pytest.raises(BadOption, match="balance"):
        Loader(pipe(rows=64), world=World(rank=0, ranks=2), sharding="dynamic")
    assert Balance(4).plan == StepPlan(rows=1)
