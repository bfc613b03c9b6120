"""Law 3 after Ctrl-C: an exception at any moment inside `next()`, then a snapshot: delivered + rest = everything."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import DataLoader2, IterableWrapper, Loader, Pipe
from headrace.errors import Closed
from tests.depth import across, depth
from tests.laws.moments import Interrupt, Moment, moments_of, read_until
from tests.laws.pipes import KINDS, Numbers, double, keyed, odd, shown, some, stream

PIPES: dict[str, Pipe[Any]] = {
    "batches": Pipe.of(Numbers(40)).shuffle().map(keyed).batch(4),
    "single samples": Pipe.of(Numbers(90)).shuffle().map(keyed),
    "regrouped": Pipe.of(Numbers(40)).flatmap(some).filter(odd).batch(3),
    "stream": Pipe.of(stream(60)).shuffle(window=7).map(double).batch(4),
    "bare stream": Pipe.of(stream(60)),
    "in the consumer": Pipe.of(Numbers(60)).sharding_filter().batch(3).enumerate().shuffle(buffer_size=4).header(18),
}


# (Between making a socket and keeping it, an interrupt leaves it to the collector.)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(depth(60, 1500))
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "inline") for name in PIPES), *across(PIPES, ["thread3", "fork1", *depth([], ["server3"])])],
)
def test_an_interrupt_at_any_moment_loses_and_repeats_nothing(name: str, kind: str) -> None:
    chance = random.Random(f"{name} {kind}")
    how = KINDS[kind]
    with Loader(PIPES[name], seed=3, **how) as loader:
        moments, whole = moments_of(iter(loader))
    for _ in range(depth(6 if kind == "inline" else 2, 90)):
        error = chance.choice([KeyboardInterrupt(), Interrupt()])
        moment = Moment(chance.randrange(moments), error)
        got: list[str] = []
        with Loader(PIPES[name], seed=3, **how) as loader:
            try:
                read_until(moment, iter(loader), got)
            except (KeyboardInterrupt, Interrupt):
                pass
            state = json.loads(json.dumps(loader.state_dict()))
        if state["epoch"] == 1:
            assert got == whole
            continue
        with Loader(PIPES[name], seed=3) as loader:
            loader.load_state_dict(state)
            assert got + [shown(s) for s in loader] == whole, (name, kind, error, moment.seen)


def graph() -> Any:
    return IterableWrapper(range(50)).shuffle().sharding_filter().map(double).batch(4)


@pytest.mark.timeout(depth(60, 600))
@pytest.mark.parametrize("limit", [None, 2])
def test_an_interrupt_inside_a_dataloader2_loses_and_repeats_nothing(limit: int | None) -> None:
    def epoch(loader: Any) -> Iterator[Any]:
        loader.seed(5)
        samples = iter(loader)
        samples.limit(limit)
        return samples

    moments, whole = moments_of(epoch(DataLoader2(graph())), limit)
    chance = random.Random(f"dataloader2 {limit}")
    for _ in range(depth(8, 1000)):
        loader: DataLoader2[Any] = DataLoader2(graph())
        got: list[str] = []
        moment = Moment(chance.randrange(moments), KeyboardInterrupt())
        try:
            read_until(moment, epoch(loader), got, limit)
        except KeyboardInterrupt:
            pass
        state = json.loads(json.dumps(loader.state_dict()))
        loader.shutdown()
        if not state["running"]:
            assert got in ([], whole)
            continue
        then: DataLoader2[Any] = DataLoader2(graph())
        then.load_state_dict(state)
        assert got + [shown(s) for s in then] == whole
        then.shutdown()


@pytest.mark.parametrize("kind", ["inline", "fork2"])
def test_an_iterator_that_was_interrupted_goes_on_or_says_how_to(kind: str) -> None:
    pipe = PIPES["batches"]
    with Loader(pipe, seed=3, **KINDS[kind]) as loader:
        moments, _ = moments_of(iter(loader))
        samples = iter(loader)
        second = [shown(next(samples)) for _ in range(3)]
        moment = Moment(moments // 30, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            read_until(moment, samples, second)
        try:
            second += [shown(s) for s in samples]  # nothing was under way
        except Closed as closed:
            assert "To go on after the batch that was received last" in str(closed)  # noqa: PT017
            loader.load_state_dict(loader.state_dict())
            second += [shown(s) for s in loader]
    with Loader(pipe, seed=3, epoch=1) as loader:
        assert second == [shown(s) for s in loader]
