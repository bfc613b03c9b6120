"""Law 3: a snapshot at any point, restored anywhere: delivered + rest = everything, once, in order."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.engine.feeds.positions import Position
from headrace.engine.places import RunPlace
from headrace.errors import SnapshotRefused
from tests.depth import depth
from tests.laws.pipes import KINDS, RANDOM_STEPS, Numbers, double, odd, pipes, read, shown, stream


def cut_and_resume(pipe: Pipe[Any], at: int, first: dict[str, Any], then: dict[str, Any]) -> tuple[list[str], int]:
    with Loader(pipe, seed=3, **first) as loader:
        samples = iter(loader)
        got = [shown(s) for _, s in zip(range(at), samples, strict=False)]
        text = json.dumps(loader.state_dict())
    with Loader(pipe, seed=3, **then) as loader:
        loader.load_state_dict(json.loads(text))
        return got + [shown(s) for s in loader], len(text)


@settings(max_examples=depth(25, 2000))
@given(
    pipes(RANDOM_STEPS),
    st.integers(0, 60),
    st.sampled_from(["inline", "fork2"]),
    st.sampled_from(["inline", "fork1", "fork5"]),
)
def test_delivered_and_rest_are_everything_once_in_order(pipe: Pipe[Any], at: int, first: str, then: str) -> None:
    whole = read(pipe)
    assert cut_and_resume(pipe, min(at, len(whole)), KINDS[first], KINDS[then])[0] == whole


def test_a_snapshot_after_the_last_sample_goes_on_with_the_next_epoch() -> None:
    pipe = Pipe.of(Numbers(20)).shuffle().batch(4)
    with Loader(pipe, seed=3) as loader:
        list(loader)
        state = loader.state_dict()
        second = [shown(b) for b in loader]
    with Loader(pipe, seed=3) as loader:
        loader.load_state_dict(state)
        assert [shown(b) for b in loader] == second


def test_a_snapshot_of_an_indexed_pipe_is_small() -> None:
    pipe = Pipe.of(Numbers(10**6)).shuffle().map(double).batch(16).collate()
    with Loader(pipe, seed=3) as loader:
        samples = iter(loader)
        for _ in range(100):
            next(samples)
        assert len(json.dumps(loader.state_dict())) <= 1024


def test_a_snapshot_loads_at_another_batch_size() -> None:
    order = list(Loader(Pipe.of(Numbers(100)).shuffle(), seed=3))
    with Loader(Pipe.of(Numbers(100)).shuffle().batch(8), seed=3) as loader:
        samples = iter(loader)
        got = [x for _ in range(3) for x in next(samples)]
        state = loader.state_dict()
    with Loader(Pipe.of(Numbers(100)).shuffle().batch(5), seed=3) as loader:
        loader.load_state_dict(state)
        assert got + [x for batch in loader for x in batch] == order


def test_a_filtered_snapshot_loads_at_another_batch_size() -> None:
    order = list(Loader(Pipe.of(Numbers(100)).shuffle().filter(odd), seed=3))
    with Loader(Pipe.of(Numbers(100)).shuffle().filter(odd).batch(8), seed=3) as loader:
        samples = iter(loader)
        got = [x for _ in range(3) for x in next(samples)]
        state = loader.state_dict()
    with Loader(Pipe.of(Numbers(100)).shuffle().filter(odd).batch(3), seed=3) as loader:
        loader.load_state_dict(state)
        assert got + [x for batch in loader for x in batch] == order


def test_resuming_far_into_a_huge_pipe_reads_only_what_is_asked_for() -> None:
    class Counted(Numbers):
        reads = 0

        def __getitem__(self, i: int) -> int:
            Counted.reads += 1
            return i

    pipe = Pipe.of(Counted(10**9)).shuffle().batch(4)
    with Loader(pipe, seed=3) as loader:
        state = loader.state_dict()
    state["at"] = RunPlace(Position(5 * 10**8)).plain()
    with Loader(pipe, seed=3) as loader:
        loader.load_state_dict(state)
        next(iter(loader))
    assert Counted.reads == 4


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Pipe.of(Numbers(20)).shuffle().map(odd).batch(4), "map"),
        (Pipe.of(Numbers(20)).shuffle(window=3).map(double).batch(4), "shuffle"),
        (Pipe.of(Numbers(20)).shuffle().map(double).batch(4).collate(), "ops"),
        (Pipe.of(stream(20)).shuffle().map(double).batch(4), "op 0"),
    ],
)
def test_a_snapshot_of_another_pipe_is_refused_with_the_op_that_differs(other: Pipe[Any], named: str) -> None:
    with Loader(Pipe.of(Numbers(20)).shuffle().map(double).batch(4)) as loader:
        state = loader.state_dict()
    with pytest.raises(SnapshotRefused, match=named):
        Loader(other).load_state_dict(state)


def test_a_snapshot_with_another_seed_is_refused() -> None:
    state = Loader(Pipe.of(Numbers(20)).shuffle(), seed=1).state_dict()
    with pytest.raises(SnapshotRefused, match="seed=1"):
        Loader(Pipe.of(Numbers(20)).shuffle(), seed=2).load_state_dict(state)


def sometimes_fails(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(x)
    return x


@pytest.mark.parametrize("at", depth([0, 5, 8], range(9)))
def test_samples_left_out_are_the_same_after_a_resume_and_stay_counted(at: int) -> None:
    for pipe in (
        Pipe.of(Numbers(40)).shuffle().map(sometimes_fails).batch(5),
        Pipe.of(Numbers(40)).shuffle().map(sometimes_fails).filter(odd).batch(2),
        Pipe.of(stream(40)).map(sometimes_fails).batch(5),
    ):
        whole = read(pipe, on_error="skip")
        with Loader(pipe, seed=3, on_error="skip", workers=2, start_method="fork") as loader:
            batches = iter(loader)
            got = [shown(next(batches)) for _ in range(min(at, len(whole)))]
            state = json.loads(json.dumps(loader.state_dict()))
        with Loader(pipe, seed=3, on_error="skip") as loader:
            loader.load_state_dict(state)
            batches = iter(loader)
            assert got + [shown(b) for b in batches] == whole
            assert batches._run.skipped == 6


@pytest.mark.parametrize("kind", ["inline", "fork2"])
def test_a_snapshot_after_a_break_stands_where_the_epoch_was_left(kind: str) -> None:
    pipe = Pipe.of(Numbers(40)).shuffle().batch(4)
    whole = read(pipe)
    got = []
    with Loader(pipe, seed=3, **KINDS[kind]) as loader:
        for batch in loader:
            got.append(shown(batch))
            if len(got) == 4:
                break
        state = loader.state_dict()
    assert state["epoch"] == 0
    with Loader(pipe, seed=3) as loader:
        loader.load_state_dict(state)
        assert got + [shown(b) for b in loader] == whole
