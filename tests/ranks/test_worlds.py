"""Law 1 for ranks x workers: every small epoch one by one over simulated worlds, some of them with real processes."""

import json
from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.errors import RanksDisagree
from tests.depth import depth
from tests.laws.pipes import Numbers, double, odd, stream
from tests.ranks.together import together

ENDS = ("short", "pad", "repeat", "drop")
SHAPES: dict[str, Any] = {
    "indexed": lambda n, b: Pipe.of(Numbers(n)).shuffle().map(int).batch(b),
    "streamed": lambda n, b: Pipe.of(stream(n)).shuffle(window=5).sharding_filter().map(int).batch(b),
}


def read(pipe: Pipe[Any], ranks: int, ends: Any, how: list[dict[str, Any]]) -> list[list[tuple[list[int], list[bool]]]]:
    """Batches and masks of each rank; ranks may have different workers."""
    out = []
    for rank in range(ranks):
        with Loader(pipe, seed=5, world=World(rank=rank, ranks=ranks), ends=ends, **how[rank % len(how)]) as loader:
            out.append([(batch, loader.mask() or [True] * len(batch)) for batch in loader])
    return out


def check(got: list[list[tuple[list[int], list[bool]]]], n: int, batch: int, ends: str) -> None:
    ranks = len(got)
    assert len({len(rank) for rank in got}) == 1, "equal steps"
    for step in zip(*got, strict=True):
        sizes = [len(samples) for samples, _ in step]
        if ends == "short":
            assert max(sizes) - min(sizes) <= 1
            assert min(sizes) >= 1
        else:
            assert set(sizes) == {batch}
    real = Counter(x for rank in got for samples, mask in rank for x, true in zip(samples, mask, strict=True) if true)
    assert max(real.values(), default=1) == 1, "disjoint, without what fills"
    assert set(real) <= set(range(n))
    left_out = n % (batch * ranks) if ends == "drop" else 0
    assert len(real) == n - left_out, "complete"


THREADS: list[dict[str, Any]] = [{}, {"workers": 1, "kind": "thread"}, {"workers": 2, "kind": "thread"}]


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_small_epoch_is_shared_by_ranks_whatever_workers_they_have(shape: str, ends: str) -> None:
    lengths, batches, worlds = depth((range(0, 14, 3), (1, 3), (1, 3)), (range(14), (1, 2, 3), (1, 2, 3, 4)))
    tried = 0
    for n, batch, ranks in product(lengths, batches, worlds):
        if ends == "short" and 0 < n < ranks:
            continue
        pipe = SHAPES[shape](n, batch)
        alone = read(pipe, ranks, ends, THREADS[:1])
        check(alone, n, batch, ends)
        for workers in THREADS[1:]:
            assert read(pipe, ranks, ends, [workers]) == alone
        tried += 1
    assert tried >= depth(16, 140)


@settings(max_examples=depth(4, 60))
@given(
    st.sampled_from(list(SHAPES)),
    st.integers(0, 40),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(ENDS),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
)
def test_ranks_with_worker_processes_share_in_the_same_way(
    shape: str, n: int, batch: int, ranks: int, ends: str, workers: list[int]
) -> None:
    if ends == "short" and 0 < n < ranks:
        n = ranks
    pipe = SHAPES[shape](n, batch)
    how: list[dict[str, Any]] = [{"workers": w, "start_method": "fork"} if w else {} for w in workers]
    got = read(pipe, ranks, ends, how)
    check(got, n, batch, ends)
    assert got == read(pipe, ranks, ends, THREADS[:1])


@pytest.mark.parametrize(
    "pipe",
    [
        Pipe.of(Numbers(60)).shuffle().batch(2),
        Pipe.of(Numbers(60)),
        Pipe.of(stream(60)).batch(2),
        Pipe.of(stream(60)).map(double).batch(2),
        Pipe.of(stream(60)),
        Pipe.of(stream(60)).sharding_filter().filter(odd).batch(2),
        Pipe.of(Numbers(60)).filter(odd).batch(2),
    ],
    ids=["indexed", "indexed samples", "stream", "mapped stream", "streamed samples", "filtered stream", "filtered"],
)
def test_states_that_disagree_are_refused_with_the_ranks_named(
    pipe: Pipe[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(world: World) -> list[Any]:
        with Loader(pipe, seed=5, world=world, workers=world.rank + 1, kind="thread") as loader:
            return [json.loads(json.dumps(loader.state_dict())) for _ in loader]

    everyone = together(3, states, monkeypatch)

    def load(world: World, steps: tuple[int, int, int]) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            loader.load_state_dict(everyone[world.rank][steps[world.rank] - 1])
            return len(list(loader))

    # Of the same step those of any rank will do, whatever words they say it in.
    assert len(set(together(3, lambda world: load(world, (3, 3, 3)), monkeypatch))) == 1
    with pytest.raises(RanksDisagree, match=r"rank 1, 2 was given another snapshot than rank 0.*of the slowest on all"):
        together(3, lambda world: load(world, (4, 2, 3)), monkeypatch)
