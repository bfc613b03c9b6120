"""Law 3 over worlds: stopped at any step on some ranks, gone on with on any other number: everything once, in order.

All ranks are loaders of this process: nothing here needs ranks to talk.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, SnapshotRefused
from tests.depth import depth
from tests.laws.pipes import Numbers, double, keyed, stream
from tests.ranks.together import together

N = 120
COLUMNS = {"k": np.arange(N), "x": np.arange(N) / 2}


SINGLE: dict[str, Pipe[Any]] = {
    "bare list": Pipe.of(list(range(N))),
    "mapped": Pipe.of(Numbers(N)).shuffle().map(keyed),
    "windowed": Pipe.of(Numbers(N)).shuffle(window=7).map(keyed),
    "bare stream": Pipe.of(stream(N)),
    "mapped stream": Pipe.of(stream(N)).map(keyed).map(double),
    "windowed stream": Pipe.of(stream(N)).shuffle(window=7).map(keyed),
    "divided stream": Pipe.of(stream(N)).sharding_filter().map(keyed),
    "in the consumer": Pipe.of(Numbers(N)).sharding_filter().map(keyed).prefetch(2).map(double),
}
BATCHED: dict[str, Pipe[Any]] = {
    "batches": Pipe.of(Numbers(N)).shuffle().map(keyed).batch(4),
    "windowed batches": Pipe.of(Numbers(N)).shuffle(window=7).batch(4).map(list),
    "stream in batches": Pipe.of(stream(N)).map(keyed).batch(4),
    "windowed stream in batches": Pipe.of(stream(N)).shuffle(window=7).map(keyed).batch(4),
    "batches of batches": Pipe.of(Numbers(N)).map(keyed).batch(3).batch(2),
}


def steps_of(pipe: Pipe[Any], ranks: int, state: str | None, steps: int | None) -> tuple[list[list[Any]], list[str]]:
    """What each rank delivers, and the snapshot that each takes then."""
    delivered, states = [], []
    for rank in range(ranks):
        with Loader(pipe, seed=3, world=World(rank=rank, ranks=ranks)) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            samples = iter(loader)
            delivered.append([s for _, s in zip(range(steps if steps is not None else 10**6), samples, strict=False)])
            states.append(json.dumps(loader.state_dict()))
    return delivered, states


def flat(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for part in value for text in flat(part)]
    return [repr(value)]


def in_order(delivered: list[list[Any]]) -> list[str]:
    """The samples of all ranks, step by step, rank by rank."""
    return flat([list(step) for step in zip(*delivered, strict=True)])


WORLDS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), min_size=2, max_size=3)


@settings(max_examples=depth(4, 600))
@given(WORLDS)
@pytest.mark.parametrize("name", [*SINGLE, *BATCHED])
def test_a_job_that_changes_its_number_of_ranks_delivers_everything_once_in_order(
    name: str, worlds: list[tuple[int, int]]
) -> None:
    pipe = {**SINGLE, **BATCHED}[name]
    whole = flat(list(Loader(pipe, seed=3)))
    got: list[str] = []
    state: str | None = None
    for number, (ranks, steps) in enumerate(worlds):
        try:
            delivered, states = steps_of(pipe, ranks, state, steps if number < len(worlds) - 1 else None)
        except BadOption:
            # Fewer samples are left than there are ranks, and every step has at least one for each of them. (The
            # samples of the outer batches are batches of 3.)
            assert name in BATCHED
            assert len(whole) - len(got) < ranks * (3 if name == "batches of batches" else 1)
            return
        if "stream" not in name:  # (where a block of a stream ends depends on time: its places have several names)
            assert len(set(states)) == 1, "one snapshot for the whole job"
        assert len({len(steps) for steps in delivered}) == 1, "steps are equal"
        got += in_order(delivered)
        state = states[0]
        if json.loads(state)["epoch"] == 1:
            break
    left_out = len(whole) - len(got)
    assert got == whole[: len(got)] if name in SINGLE else sorted(got) == sorted(whole)
    assert 0 <= left_out < max(ranks for ranks, _ in worlds), "at most what not every rank could get"


@pytest.mark.parametrize(("ranks", "then"), [(1, 2), (5, 1), (2, 3)])
def test_columns_go_on_in_another_world(ranks: int, then: int) -> None:
    pipe = Pipe.of(COLUMNS).batch(8)
    for steps in (1, 3):
        delivered, states = steps_of(pipe, ranks, None, steps)
        rest, _ = steps_of(pipe, then, states[0], None)
        keys = [int(k) for part in (*delivered, *rest) for batch in part for k in np.asarray(batch["k"])]
        assert sorted(keys) == list(range(N))


def sometimes(x: int) -> int:
    if x % 10 == 7:
        raise ValueError(x)
    return x


def test_single_samples_of_which_some_were_left_out_continue_in_another_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks tell each other which positions have a sample, so what is left is known to all of them."""
    pipe = Pipe.of(Numbers(N)).map(sometimes)
    good = [x for x in range(N) if x % 10 != 7]
    for steps in (1, 7, 8, 9, 70):
        with Loader(pipe, seed=3, on_error="skip") as loader:
            samples = iter(loader)
            first = [next(samples) for _ in range(steps)]
            state = json.dumps(loader.state_dict())
        for ranks in (2, 3):

            def rest(world: World, state: str = state) -> tuple[list[int], str]:
                with Loader(pipe, seed=3, on_error="skip", world=world, workers=1, kind="thread") as loader:
                    loader.load_state_dict(json.loads(state))
                    samples = iter(loader)
                    return [next(samples) for _ in range(5)], json.dumps(loader.state_dict())

            then = together(ranks, rest, monkeypatch)
            # (Each rank has made one of the next ones, not always in the order of ranks.)
            made = [x for step in zip(*(got for got, _ in then), strict=True) for x in sorted(step)]
            assert first + made == good[: steps + 5 * ranks]
            with Loader(pipe, seed=3, on_error="skip") as loader:
                loader.load_state_dict(json.loads(then[0][1]))
                assert list(loader) == good[steps + 5 * ranks :]


WHOLE_BATCHES: dict[str, Any] = {
    "batches of batches": lambda size: Pipe.of(Numbers(N)).batch(size).batch(2),
    "put together": lambda size: Pipe.of(Numbers(N)).batch(size).concat(Pipe.of(Numbers(9)).batch(size)),
    "the first few": lambda size: Pipe.of(Numbers(N)).batch(size).header(1000),
    "numbered": lambda size: Pipe.of(Numbers(N)).batch(size).enumerate(),
    "shuffled in a buffer": lambda size: Pipe.of(stream(N)).batch(size).shuffle(buffer_size=3),
}


@pytest.mark.parametrize("name", WHOLE_BATCHES)
def test_a_place_that_counts_batches_is_refused_with_batches_of_another_size(name: str) -> None:
    first = Loader(WHOLE_BATCHES[name](4), seed=3)
    for _ in zip(range(3), first, strict=False):
        pass
    state = json.loads(json.dumps(first.state_dict()))
    for size in (2, 5):
        with pytest.raises(SnapshotRefused, match=f"counts batches of 4.*batches of {size} here"):
            Loader(WHOLE_BATCHES[name](size), seed=3).load_state_dict(state)
    Loader(WHOLE_BATCHES[name](4), seed=3).load_state_dict(state)
    for broken in (7, [], [3, 4, 5], ["x"]):
        with pytest.raises(SnapshotRefused):
            Loader(WHOLE_BATCHES[name](4), seed=3).load_state_dict({**state, "batches": broken})


def test_the_size_of_batches_at_the_end_may_change_where_others_are_counted() -> None:
    first = Loader(Pipe.of(Numbers(N)).batch(2).batch(3), seed=3)
    got = [batch for _, batch in zip(range(3), first, strict=False)]
    second = Loader(Pipe.of(Numbers(N)).batch(2).batch(5), seed=3)
    second.load_state_dict(first.state_dict())
    assert flat([*got, *second]) == flat(list(range(N)))


def test_ranks_in_step_continue_with_batches_of_the_same_size_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(size: int) -> Pipe[Any]:
        return Pipe.of(stream(N)).sharding_filter().filter(lambda x: x % 3 > 0).batch(size)

    def read(world: World, size: int, state: Any, steps: int) -> tuple[list[Any], Any]:
        with Loader(pipe(size), seed=3, world=world) as loader:
            if state is not None:
                loader.load_state_dict(state)
            got = [batch for _, batch in zip(range(steps), loader, strict=False)]
            return got, loader.state_dict()

    begun = together(2, lambda world: read(world, 4, None, 2), monkeypatch)
    with pytest.raises(SnapshotRefused, match="counts batches of 4"):
        together(2, lambda world: read(world, 3, begun[0][1], 100), monkeypatch)
    rest = together(2, lambda world: read(world, 4, begun[0][1], 100), monkeypatch)
    assert sorted(flat([got for got, _ in (*begun, *rest)])) == sorted(flat([x for x in range(N) if x % 3]))
