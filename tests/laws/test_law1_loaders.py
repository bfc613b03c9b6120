"""Law 1 through loaders: ranks of a simulated world share every pipe disjointly and completely, in equal steps."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from tests.depth import depth
from tests.laws.pipes import Numbers, double, drawn, shown, stream

SHAPES: dict[str, Any] = {
    "indexed": lambda n, b: Pipe.of(Numbers(n)).shuffle().map(double).batch(b),
    "streamed": lambda n, b: Pipe.of(stream(n)).shuffle(window=7).sharding_filter().map(double).batch(b),
    "assembled": lambda n, b: Pipe.of(stream(n)).batch(b),
}


def samples(rank: list[Any]) -> list[int]:
    return [x[0] if isinstance(x, tuple) else x for batch in rank for x in batch]


def read_ranks(pipe: Pipe[Any], ranks: int, ends: Any = "short", **how: Any) -> list[list[Any]]:
    out = []
    for rank in range(ranks):
        with Loader(pipe, seed=5, world=World(rank=rank, ranks=ranks), ends=ends, **how) as loader:
            out.append(list(loader))
    return out


@settings(max_examples=depth(50, 1500))
@given(st.sampled_from(list(SHAPES)), st.integers(0, 60), st.integers(1, 5), st.integers(1, 4))
def test_short_gives_every_sample_once_in_equal_steps(shape: str, n: int, batch: int, ranks: int) -> None:
    if 0 < n < ranks:
        return
    per_rank = read_ranks(SHAPES[shape](n, batch), ranks)
    assert len({len(r) for r in per_rank}) == 1
    assert sorted(x for r in per_rank for x in samples(r)) == list(range(n))
    for step in zip(*per_rank, strict=True):
        sizes = [len(b) for b in step]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) > 0


@settings(max_examples=depth(30, 600))
@given(st.sampled_from(list(SHAPES)), st.integers(0, 60), st.integers(1, 5), st.integers(1, 4))
def test_drop_leaves_out_the_incomplete_step_everywhere(shape: str, n: int, batch: int, ranks: int) -> None:
    per_rank = read_ranks(SHAPES[shape](n, batch), ranks, "drop")
    assert all(len(r) == n // (batch * ranks) for r in per_rank)
    assert all(len(b) == batch for r in per_rank for b in r)
    got = [x for r in per_rank for x in samples(r)]
    assert len(set(got)) == len(got)


@pytest.mark.parametrize("shape", ["indexed", "streamed"])
def test_values_of_full_steps_do_not_depend_on_the_world(shape: str) -> None:
    make = {
        "indexed": Pipe.of(Numbers(48)).shuffle().map(drawn).batch(4),
        "streamed": Pipe.of(stream(48)).shuffle(window=7).sharding_filter().map(drawn).batch(4),
    }[shape]
    alone = [shown(b) for b in Loader(make, seed=5)]
    for ranks in (2, 3):
        dealt = read_ranks(make, ranks, workers=2, start_method="fork")
        assert [shown(b) for step in zip(*dealt, strict=True) for b in step] == alone


@pytest.mark.parametrize("shape", ["indexed", "streamed", "assembled"])
@pytest.mark.parametrize(("first", "then"), [(3, 2), (2, 4), (1, 3), (4, 1)])
def test_a_snapshot_of_any_rank_loads_in_another_world(shape: str, first: int, then: int) -> None:
    pipe = SHAPES[shape](53, 2)
    states, got = [], []
    for rank in range(first):
        with Loader(pipe, seed=5, world=World(rank=rank, ranks=first)) as loader:
            batches = iter(loader)
            got += samples([next(batches) for _ in range(3)])
            states.append(loader.state_dict())
    if shape == "indexed":
        assert all(s == states[0] for s in states)
    # A stream's snapshot may name the same place in several ways: any rank's must do.
    for state in states:
        rest = []
        for rank in range(then):
            with Loader(pipe, seed=5, world=World(rank=rank, ranks=then)) as loader:
                loader.load_state_dict(state)
                rest += samples(list(loader))
        assert sorted(got + rest) == list(range(53))


@pytest.mark.parametrize("source", [Numbers(23), stream(23)])
def test_unbatched_items_are_dealt_in_turn_and_the_surplus_is_dropped(source: Any) -> None:
    per_rank = read_ranks(Pipe.of(source), 2)
    assert per_rank == [list(range(0, 22, 2)), list(range(1, 22, 2))]


def test_ranks_of_one_replica_group_get_the_same_samples() -> None:
    pipe = Pipe.of(Numbers(40)).shuffle().batch(4)
    got = [list(Loader(pipe, seed=5, world=World(rank=r, ranks=4, replicas=2))) for r in range(4)]
    assert got[0] == got[1]
    assert got[2] == got[3]
    assert sorted(x for r in (0, 2) for b in got[r] for x in b) == list(range(40))
