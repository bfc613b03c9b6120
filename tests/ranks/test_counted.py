"""Loaders of ranks that count: one place after every step, replicas, epochs side by side, breaks, broken snapshots."""

import json
import random
from typing import Any

import pytest

import headrace
from headrace import Loader, Pipe, World
from headrace.errors import SnapshotRefused
from headrace.ranks import exchange as exchanges
from tests.depth import depth
from tests.faults.test_snapshots import mutated
from tests.laws.pipes import Numbers, some, stream
from tests.ranks.test_in_step import part
from tests.ranks.together import together


def keyed(x: int) -> tuple[int, float]:
    return x, float(headrace.rng().random())


def most(x: int) -> bool:
    return x % 5 > 1


def chosen(batch: list[int]) -> bool:
    return batch[0] % 3 > 0


SHAPES: dict[str, Pipe[Any]] = {
    "filtered batches": Pipe.of(Numbers(601)).shuffle().filter(most).map(keyed).batch(3),
    "filtered samples": Pipe.of(Numbers(301)).shuffle().filter(most).map(keyed),
    "flattened batches": Pipe.of(Numbers(251)).shuffle().flatmap(some).map(keyed).batch(2),
    "filter after batch": Pipe.of(Numbers(250)).shuffle().batch(4).filter(chosen),
    "batches of batches": Pipe.of(Numbers(601)).filter(most).batch(3).batch(2),
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_snapshot_after_any_step_continues_with_the_step_after_it(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, ranks = SHAPES[shape], 3

    def whole(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            return [(batch, json.dumps(loader.state_dict())) for batch in loader]

    everyone = together(ranks, whole, monkeypatch)
    steps = len(everyone[0])
    for states in zip(*([state for _, state in rank] for rank in everyone), strict=True):
        assert len(set(states)) == 1, "one snapshot for the whole job"
        assert len(states[0]) <= 1024 + 100 * ranks
    for step in range(1, steps + 1, depth(17, 1)):
        state = everyone[0][step - 1][1]
        then = together(ranks, lambda w, s=state: part(pipe, w, s, None, 2)[0], monkeypatch)
        rest = [[batch for batch, _ in rank[step:]] for rank in everyone]
        if shape in ("filtered batches", "filtered samples"):
            assert then == rest
        else:  # (where ranks deliver their own outputs, the last ones may be dealt to others)
            assert len({len(got) for got in then}) == 1
            assert sorted(flat(then)) == sorted(flat(rest))


def flat(value: Any) -> list[Any]:
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def test_ranks_of_one_replica_group_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ("filtered batches", "flattened batches"):
        four = together(4, lambda w, p=SHAPES[shape]: part(p, w, None, 5), monkeypatch, replicas=2)
        assert four[0] == four[1]
        assert four[2] == four[3]
        two = together(2, lambda w, p=SHAPES[shape]: part(p, w, None, 5), monkeypatch)
        assert [four[0], four[2]] == two


def test_no_two_ranks_draw_the_same_values_for_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(Numbers(100)).filter(most).batch(3).map(lambda b: float(headrace.rng().random()))
    drawn = together(3, lambda w: part(pipe, w)[0], monkeypatch)
    everything = [v for rank in drawn for v in rank]
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(
    "pipe",
    [
        Pipe.of(stream(60)).sharding_filter().shuffle(buffer_size=5).map(keyed),
        Pipe.of(Numbers(60)).sharding_filter().shuffle(buffer_size=5).map(keyed).batch(4),
        Pipe.of(stream(60)).fullsync().map(keyed),
    ],
)
def test_no_two_ranks_draw_the_same_values_in_ops_of_the_consumer(
    pipe: Pipe[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = together(2, lambda w: part(pipe, w)[0], monkeypatch)
    everything = [value for _, value in flat(whole)]
    assert len(set(everything)) == len(everything) == 60
    replicated = together(4, lambda w: part(pipe, w)[0], monkeypatch, replicas=2)
    assert replicated == [whole[0], whole[0], whole[1], whole[1]]
    first = together(2, lambda w: part(pipe, w, None, 5), monkeypatch)
    rest = together(2, lambda w: part(pipe, w, first[0][1])[0], monkeypatch)
    assert [begun + more for (begun, _), more in zip(first, rest, strict=True)] == whole


@pytest.mark.parametrize("shape", ["filtered batches", "filtered samples", "flattened batches", "batches of batches"])
def test_a_mutated_snapshot_of_a_job_is_refused_or_gives_samples(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(shape)
    pipe, told = SHAPES[shape], 0
    first = together(3, lambda w: part(pipe, w, None, 5), monkeypatch)
    then = together(2, lambda w: part(pipe, w, first[0][1], 3), monkeypatch)
    for i in range(depth(150, 4000)):
        state = mutated(json.loads((first if i % 2 else then)[0][1]), chance)
        try:
            with Loader(pipe, seed=5) as loader:
                loader.load_state_dict(state)
                samples = iter(loader)
                for _ in range(5):
                    next(samples, None)
        except SnapshotRefused:
            told += 1
    assert told > depth(50, 1500)


@pytest.mark.parametrize("pipe", [SHAPES["filtered batches"], Pipe.of(Numbers(30)).batch(4)])
def test_loaders_agree_on_what_rank_zero_says(pipe: Pipe[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            loader.set_epoch(loader.agree(world.rank + 10))
            return loader.epoch, len(list(loader)), loader.agree(2**64 - 1 - world.rank)

    assert Loader(pipe).agree(7) == 7
    one, other = together(2, body, monkeypatch)
    assert one == other == (10, one[1], 2**64 - 1)


def test_two_epochs_can_be_read_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SHAPES["filtered batches"]

    def body(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            return list(zip(loader, loader, strict=False)), list(loader)

    def epochs(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            return [list(loader) for _ in range(3)]

    both = together(2, body, monkeypatch)
    for (pairs, third), alone in zip(both, together(2, epochs, monkeypatch), strict=True):
        assert [one for one, _ in pairs] == alone[0][: len(pairs)]
        assert [other for _, other in pairs] == alone[1][: len(pairs)]
        assert third == alone[2]


@pytest.mark.parametrize("shape", list(SHAPES))
def test_ranks_that_leave_after_the_same_step_leave_no_thread_and_no_error(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(1, 12):
        together(3, lambda w, u=steps: part(SHAPES[shape], w, None, u, 1 + w.rank), monkeypatch)
        assert not exchanges.EXCHANGING


def test_a_loader_that_is_closed_is_an_error_for_those_that_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(Numbers(6001)).shuffle().filter(most).map(keyed).batch(3)

    def body(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            if world.rank == 0:
                return [next(iter(loader))]
            got: list[Any] = []
            with pytest.raises(RuntimeError, match="another rank has left the job, or closed its loader"):
                got.extend(loader)
            return loader.state_dict()["at"]

    _, one, other = together(3, body, monkeypatch)
    assert one
    assert other


@pytest.mark.parametrize("shape", ["filtered batches", "filtered samples"])
@pytest.mark.parametrize("worlds", [(3, 2, 4), (2, 3, 1), (4, 4, 4), (1, 3, 2)])
@pytest.mark.parametrize("steps", [1, 5, 11])
def test_a_job_stopped_twice_continues_in_other_worlds_in_the_order_of_the_epoch(
    shape: str, worlds: tuple[int, ...], steps: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipe, state = SHAPES[shape], None
    place = {v: i for i, v in enumerate(v for x in Loader(pipe, seed=5) for v in (x if isinstance(x, list) else [x]))}
    delivered = 0
    for number, ranks in enumerate(worlds):
        until = steps if number < len(worlds) - 1 else None
        got = together(ranks, lambda w, s=state, u=until, n=number: part(pipe, w, s, u, 1 + n), monkeypatch)
        assert len({text for _, text in got}) == 1, "one snapshot for the whole job"
        state = got[0][1]
        for step in zip(*(mine for mine, _ in got), strict=True):
            order = [place[v] for v in flat(list(step))]
            assert sorted(order) == list(range(delivered, delivered + len(order)))
            delivered += len(order)
    # Single samples that not every rank can have are left out at the end, and told.
    missing = len(place) - delivered
    told = sum(record.args[0] for record in caplog.records if "left out" in record.msg)  # type: ignore[misc,index]
    assert missing == told < max(1, worlds[-1] if shape == "filtered samples" else 1)
