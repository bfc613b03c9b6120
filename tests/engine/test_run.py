"""The loop in one process: whatever the order of answers, the stream is the same, and goes on from any place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Budget, Pipe, World
from headrace.engine.program import cut
from headrace.errors import TooManyErrors
from tests.depth import depth
from tests.engine.scripted import Script, place, read, run
from tests.laws.pipes import RANDOM_STEPS, Numbers, double, drawn, keyed, odd, pipes, shown, some, stream
from tests.laws.pipes import read as read_with_a_loader

PIPES = {
    "positions": Pipe.of(Numbers(200)).shuffle().map(keyed),
    "batches": Pipe.of(Numbers(100)).shuffle().map(drawn).batch(7),
    "regrouped": Pipe.of(Numbers(100)).flatmap(some).batch(4).map(drawn).filter(odd).batch(2),
    "stream": Pipe.of(stream(100)).shuffle(window=9).sharding_filter().map(drawn).batch(4),
    "bare stream": Pipe.of(stream(100)),
}


def without_tail(pipe: Pipe[Any]) -> Pipe[Any]:
    """A run has no ops in the consumer: those are the epoch's."""
    program = cut(pipe, 3)
    return program.tail[0].inputs[0] if program.tail else pipe


@settings(max_examples=depth(80, 2000))
@given(pipes(RANDOM_STEPS), st.integers(0, 10**6), st.integers(0, 60))
def test_any_order_of_answers_gives_the_same_stream_and_any_place_goes_on(pipe: Pipe[Any], seed: int, at: int) -> None:
    pipe = without_tail(pipe)
    whole = read_with_a_loader(pipe)
    first, _ = run(pipe, Script(seed))
    got = [shown(sample) for _, sample in zip(range(at), first, strict=False)]
    rest, _ = run(pipe, Script(seed + 1), place(first))
    assert got + read(rest) == whole


@pytest.mark.parametrize("name", list(PIPES))
def test_every_place_of_an_epoch_goes_on_behind_it(name: str) -> None:
    whole = read_with_a_loader(PIPES[name])
    samples, _ = run(PIPES[name], Script(5))
    for at in range(0, len(whole) + 1, depth(3, 1)):
        rest, _ = run(PIPES[name], Script(at), place(samples))
        assert read(rest) == whole[at:]
        for _ in range(depth(3, 1)):
            next(samples, None)


def test_work_runs_ahead_of_delivery_as_far_as_the_window_and_no_further() -> None:
    samples, workers = run(PIPES["batches"], Script(room=100), workers=2, window=5)
    next(samples)
    assert workers.most == 5


def test_unordered_delivery_gives_everything_once() -> None:
    samples, _ = run(PIPES["batches"], Script(9), ordered=False)
    assert sorted(read(samples)) == sorted(read_with_a_loader(PIPES["batches"]))


@pytest.mark.parametrize("strands", [2, 3, 7])
def test_strands_are_read_in_turn_whoever_is_faster(strands: int) -> None:
    pipe = Pipe.of(stream(90)).sharding_filter().map(keyed).batch(4)
    streams = [read(run(pipe, Script(seed), strands=strands)[0]) for seed in range(4)]
    assert all(s == streams[0] for s in streams)


@pytest.mark.parametrize("ends", ["short", "pad", "repeat", "drop"])
@pytest.mark.parametrize("source", [Numbers(50), stream(50)], ids=["positions", "stream"])
def test_ranks_share_the_stream_whatever_the_order_of_answers(source: Any, ends: str) -> None:
    pipe = Pipe.of(source).map(double).batch(4)
    for seed in range(3):
        ranks = [read(run(pipe, Script(seed + r), world=World(rank=r, ranks=3), ends=ends)[0]) for r in range(3)]
        assert ranks == [read(run(pipe, Script(), world=World(rank=r, ranks=3), ends=ends)[0]) for r in range(3)]
        assert len({len(steps) for steps in ranks}) == 1


def fails_at_30(x: int) -> int:
    if x == 30:
        raise ValueError("thirty")
    return x


@pytest.mark.parametrize("source", [Numbers(60), stream(60)], ids=["positions", "stream"])
def test_a_failed_batch_is_an_error_at_its_place_and_the_run_goes_on_behind_it(source: Any) -> None:
    pipe = Pipe.of(source).map(fails_at_30).batch(4)
    samples, _ = run(pipe, Script(11))
    assert [next(samples) for _ in range(7)] == [list(range(i, i + 4)) for i in range(0, 28, 4)]
    with pytest.raises(ValueError, match="thirty"):
        next(samples)
    assert [x for batch in samples for x in batch] == list(range(32, 60))


def test_a_budget_of_errors_is_exhausted_at_the_same_place_in_every_order() -> None:
    def often(x: int) -> int:
        if x % 5 == 0:
            raise ValueError(x)
        return x

    told = set()
    for seed in range(5):
        samples, _ = run(Pipe.of(Numbers(90)).map(often).batch(4), Script(seed), on_error=Budget(count=7))
        got = []
        with pytest.raises(TooManyErrors) as error:
            got += list(samples)
        told.add((str(error.value), repr(got)))
    assert len(told) == 1


def test_a_run_that_is_left_asks_for_nothing_more() -> None:
    samples, workers = run(PIPES["stream"], Script(4))
    next(samples)
    samples.abandon()
    assert not workers.running()
    assert not samples._ready


def fails_at(*bad: int) -> Any:
    def fails(x: int) -> int:
        if x in bad:
            raise ValueError(x)
        return x

    return fails


@pytest.mark.parametrize("bad", [(30,), (0,), (63,), (64, 65), (199,), (7, 70, 71, 150)])
@pytest.mark.parametrize("source", [Numbers(200), stream(200)], ids=["positions", "stream"])
def test_an_error_about_one_single_sample_leaves_its_neighbours_alone(source: Any, bad: tuple[int, ...]) -> None:
    got: list[Any] = []
    samples, _ = run(Pipe.of(source).map(fails_at(*bad)), Script(sum(bad)))
    while True:
        try:
            got.append(next(samples))
        except StopIteration:
            break
        except ValueError as error:
            got.append(f"not {error.args[0]}")
    assert got == [f"not {x}" if x in bad else x for x in range(200)]


def test_a_filtered_block_that_fails_is_told_from_its_neighbours() -> None:
    samples, _ = run(Pipe.of(Numbers(64)).filter(odd).map(fails_at(31)).batch(4), Script(3))
    got, errors = [], 0
    while True:
        try:
            got += next(samples)
        except StopIteration:
            break
        except ValueError:
            errors += 1
    assert errors == 1
    assert len([x for x in range(1, 64, 2) if x not in got]) <= 4
    assert got == sorted(got)
