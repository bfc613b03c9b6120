"""Law 2: the stream (samples, batches, random values) is the same inline, in threads, in 1..N processes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe
from tests.depth import across, depth
from tests.laws.pipes import (
    CHEAP,
    KINDS,
    RANDOM_STEPS,
    SEEDED,
    Numbers,
    double,
    drawn,
    keyed,
    odd,
    pipes,
    read,
    shown,
    some,
    stream,
)


@settings(max_examples=depth(20, 600))
@given(pipes(RANDOM_STEPS), st.sampled_from([k for k in CHEAP if k in SEEDED]))
def test_the_stream_is_the_same_inline_and_in_processes(pipe: Pipe[Any], kind: str) -> None:
    assert read(pipe, 2, **KINDS[kind]) == read(pipe, 2)


@settings(max_examples=depth(25, 600))
@given(pipes(), st.sampled_from(["thread1", "thread3"]))
def test_the_stream_is_the_same_inline_and_in_threads(pipe: Pipe[Any], kind: str) -> None:
    assert read(pipe, 2, **KINDS[kind]) == read(pipe, 2)


EXAMPLES = {
    "indexed": Pipe.of(Numbers(101)).shuffle().map(drawn).batch(8),
    "filtered": Pipe.of(Numbers(101)).shuffle().map(drawn).filter(odd).batch(8),
    "spread": Pipe.of(Numbers(101)).map(drawn).flatmap(some).map(drawn).batch(7),
    "streamed": Pipe.of(stream(101)).shuffle(window=10).sharding_filter().map(drawn).batch(6),
    "single": Pipe.of(stream(101)).map(drawn),
    "branched": Pipe.of(stream(30)).mix(Pipe.of(Numbers(40)).map(drawn)).map(keyed).batch(3),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "kind"), across(EXAMPLES, SEEDED))
def test_every_shape_of_pipe_gives_one_stream_on_every_kind(name: str, kind: str) -> None:
    assert read(EXAMPLES[name], 2, **KINDS[kind]) == read(EXAMPLES[name], 2)


def torch_drawn(x: int) -> tuple[int, float]:
    import torch

    return x, float(torch.rand(()))


@pytest.mark.parametrize("kind", depth(["fork2"], ["fork1", "fork2", "server3"]))
def test_values_of_torch_rand_are_the_same_inline_and_in_processes(kind: str) -> None:
    pipe = Pipe.of(Numbers(50)).shuffle().map(torch_drawn).batch(8).collate()
    assert read(pipe, 2, **KINDS[kind]) == read(pipe, 2)


@pytest.mark.parametrize("kind", ["inline", "thread3", "fork2"])
def test_each_epoch_has_an_order_of_its_own_and_every_sample_once(kind: str) -> None:
    with Loader(Pipe.of(Numbers(100)).shuffle(), seed=1, **KINDS[kind]) as loader:
        epochs = [list(loader) for _ in range(4)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_keyed_values_do_not_change_with_the_batch_size() -> None:
    pipe = Pipe.of(Numbers(50)).shuffle().map(keyed)
    one = read(pipe)
    assert [shown(x) for batch in Loader(pipe.batch(7), seed=3) for x in batch] == one


@pytest.mark.parametrize("kind", ["inline", "thread3"])
def test_the_callers_generators_are_left_as_they_were(kind: str) -> None:
    import random

    import torch

    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    want = (random.random(), np.random.rand(), float(torch.rand(())))
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    pipe = Pipe.of(Numbers(20)).shuffle().map(drawn if kind == "inline" else double).batch(4)
    read(pipe, **KINDS[kind])
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == want


def test_one_slow_sample_does_not_change_the_order() -> None:
    import time

    def sometimes_slow(x: int) -> int:
        if x % 25 == 0:
            time.sleep(0.05)
        return x

    pipe = Pipe.of(Numbers(100)).map(sometimes_slow).batch(2)
    assert read(pipe, workers=4, start_method="fork") == read(pipe)


def test_unordered_delivery_has_every_sample_once() -> None:
    with Loader(Pipe.of(Numbers(200)).batch(4), workers=3, ordered=False) as loader:
        assert sorted(x for batch in loader for x in batch) == list(range(200))


@pytest.mark.parametrize("kind", ["inline", "fork2"])
def test_epochs_may_be_asked_for_in_any_order(kind: str) -> None:
    pipe = Pipe.of(stream(700)).shuffle(buffer_size=10)
    with Loader(pipe, seed=3, **KINDS[kind]) as loader:
        for epoch in (9, 8, 7, 8):
            loader.set_epoch(epoch)
            assert sorted(loader) == list(range(700))


def test_a_stream_can_be_cycled_after_the_mark() -> None:
    pipe = Pipe.of(stream(9)).shuffle(buffer_size=3).sharding_filter().map(str).cycle(3)
    got = list(Loader(pipe, seed=3))
    turns = [got[i : i + 9] for i in (0, 9, 18)]
    assert all(sorted(turn) == sorted(map(str, range(9))) for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    for at in range(0, 28, depth(9, 1)):
        with Loader(pipe, seed=3, workers=1, start_method="fork") as loader:
            samples = iter(loader)
            before = [next(samples) for _ in range(min(at, 27))]
            state = loader.state_dict()
        with Loader(pipe, seed=3) as loader:
            loader.load_state_dict(state)
            assert before + list(loader) == got
