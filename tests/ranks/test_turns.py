"""Ranks behind a filter: stopped anywhere, gone on in any other world, each sample is delivered once and in order."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import Loader, Pipe, World
from headrace.errors import SnapshotRefused
from headrace.plan.turns import RankTickets, Remaining, positions_of, progressions, remaining_after
from tests.depth import depth
from tests.faults.test_snapshots import mutated
from tests.laws.pipes import Numbers, odd, some, stream
from tests.ranks.together import together

WORLDS = st.lists(
    st.tuples(
        st.integers(1, 5), st.sampled_from([1, 2, 4, 7]), st.lists(st.integers(0, 400), min_size=10, max_size=10)
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=depth(200, 5000))
@given(st.integers(0, 300), WORLDS)
def test_what_is_left_is_dealt_out_once_after_any_history_of_worlds(length: int, worlds: Any) -> None:
    rest, expected = Remaining(), set(range(length))
    for ranks, block, draws in worlds:
        turns = [RankTickets(rest, ranks, rank, block, length) for rank in range(ranks)]
        dealt = [p for t in turns for ticket in range(t.tickets) for p in t.positions(ticket)]
        assert sorted(dealt) == sorted(expected)
        for t in turns:
            later = [p for ticket in range(len(rest.atoms[t._rank :: ranks]), t.tickets) for p in t.positions(ticket)]
            assert all(a < b for a, b in pairwise(later))
        progress = []
        for rank, t in enumerate(turns):
            ticket = min(draws[rank], t.tickets)
            gone = draws[5 + rank] % 3 if ticket < t.tickets else 0
            progress.append((ticket, gone))
            for done in range(ticket):
                expected -= set(t.positions(done))
        rest = remaining_after(rest, block, progress, length)


@given(st.lists(st.integers(0, 1000), max_size=30))
def test_positions_survive_being_written_as_pieces(positions: list[int]) -> None:
    assert positions_of(progressions(sorted(set(positions)))) == sorted(set(positions))


def test_levels_disappear_once_every_rank_is_past_the_gaps() -> None:
    rest = remaining_after(Remaining(), 4, [(5, 0), (3, 2), (9, 0)], 10**6)
    assert len(rest.levels) == 1
    assert len(rest.atoms) == 1
    later = remaining_after(rest, 4, [(100, 0), (101, 0)], 10**6)
    assert len(later.levels) == 1
    assert remaining_after(later, 4, [(500, 0), (500, 0)], 10**6).levels == ()


def keyed(x: int) -> tuple[int, float]:
    return x, float(headrace.rng().random())


def most(x: int) -> bool:
    return x % 5 > 1


SHAPES: dict[str, Any] = {
    "filtered batches": Pipe.of(Numbers(601)).shuffle().filter(most).map(keyed).batch(3),
    "filtered samples": Pipe.of(Numbers(301)).shuffle().filter(most).map(keyed),
    "flattened batches": Pipe.of(Numbers(251)).shuffle().flatmap(some).map(keyed).batch(2),
}


def values(pipe: Pipe[Any]) -> list[tuple[int, float]]:
    """Every sample of one epoch, in the order of the epoch."""
    return [v for x in Loader(pipe, seed=5) for v in (x if isinstance(x, list) else [x])]


def part(pipe: Pipe[Any], world: World, state: Any, steps: int | None, workers: int) -> tuple[list[Any], Any]:
    """What one rank gets of a job that stops after so many steps, and the snapshot then."""
    # Never inline: it lends itself the generators of the whole process, and here the ranks are threads of one.
    with Loader(pipe, seed=5, world=world, workers=workers, kind="thread") as loader:
        if state is not None:
            loader.load_state_dict(json.loads(state))
        got: list[Any] = []
        for sample in loader:
            got.append(sample)
            if len(got) == steps:
                break
        return got, json.dumps(loader.state_dict())


def flat(got: list[Any]) -> list[tuple[int, float]]:
    return [v for x in got for v in (x if isinstance(x, list) else [x])]


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("worlds", [(3, 2, 4), (2, 3, 1), (4, 4, 4), (1, 3, 2)])
@pytest.mark.parametrize("steps", [1, 5, 11])
def test_a_job_stopped_twice_goes_on_in_other_worlds(
    shape: str, worlds: tuple[int, ...], steps: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipe, state = SHAPES[shape], None
    whole = values(pipe)
    place = {v: i for i, v in enumerate(whole)}
    delivered: list[tuple[int, float]] = []
    for number, ranks in enumerate(worlds):
        until = steps if number < len(worlds) - 1 else None
        workers = (1, 2, 3)[number]
        ranks_got = together(ranks, lambda w, s=state, u=until, n=workers: part(pipe, w, s, u, n), monkeypatch)
        assert len({len(got) for got, _ in ranks_got}) == 1, "steps are equal"
        assert len({text for _, text in ranks_got}) == 1, "one snapshot for the whole job"
        assert len(ranks_got[0][1]) <= 1024 + 16 * ranks
        state = ranks_got[0][1]
        for got, _ in ranks_got:
            if shape != "flattened batches":  # a sample that is spread over several cannot be told from its copies
                order = [place[v] for v in flat(got)]
                begun = [i for i, (a, b) in enumerate(pairwise(order)) if a > b]
                assert len(begun) <= 2, "global order, after the tickets that were begun elsewhere"
        delivered += [v for got, _ in ranks_got for v in flat(got)]
    assert not [v for v in set(delivered) if delivered.count(v) > whole.count(v)], "nothing comes twice"
    # What not all ranks could get is left out at the end, and told.
    told = sum(record.args[0] for record in caplog.records if "left out" in record.msg)  # type: ignore[misc,index]
    size = {"filtered batches": 3, "filtered samples": 1, "flattened batches": 2}[shape]
    missing = len(whole) - len(delivered)
    assert 0 <= missing <= told * size
    assert missing <= len(whole) // 5 if worlds[-1] > 1 else missing == 0


def test_going_on_in_the_same_world_gives_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SHAPES["filtered batches"]
    whole = together(3, lambda w: part(pipe, w, None, None, 1)[0], monkeypatch)
    for steps in (1, 7, 8, 9, 15):
        first = together(3, lambda w, u=steps: part(pipe, w, None, u, 1), monkeypatch)
        then = together(3, lambda w, s=first[0][1]: part(pipe, w, s, None, 2), monkeypatch)
        assert [a + b for (a, _), (b, _) in zip(first, then, strict=True)] == whole


@pytest.mark.parametrize(
    "pipe",
    [
        Pipe.of(stream(200)).sharding_filter().filter(odd).batch(2),
        Pipe.of(Numbers(200)).shuffle().batch(4).filter(lambda b: b[0] % 3 > 0),
        Pipe.of(Numbers(600)).shuffle().filter(odd).batch(2).filter(lambda b: b[0] % 3 > 0).unbatch().batch(3),
    ],
    ids=["stream", "batches", "twice"],
)
def test_other_pipes_go_on_in_a_world_of_the_same_size_only(pipe: Pipe[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = together(3, lambda w: part(pipe, w, None, None, 1)[0], monkeypatch)
    for steps in (3, 8, 10):
        first = together(3, lambda w, u=steps: part(pipe, w, None, u, 2), monkeypatch)
        assert len({text for _, text in first}) == 1
        state = first[0][1]
        then = together(3, lambda w, s=state: part(pipe, w, s, None, 1), monkeypatch)
        assert [a + b for (a, _), (b, _) in zip(first, then, strict=True)] == whole
        for ranks in (1, 2):
            with pytest.raises(SnapshotRefused, match="taken on 3 ranks"):
                together(ranks, lambda w, s=state: part(pipe, w, s, None, 1), monkeypatch)


def test_ranks_of_one_replica_group_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SHAPES["filtered batches"]
    four = together(4, lambda w: part(pipe, w, None, 5, 1), monkeypatch, replicas=2)
    assert four[0] == four[1]
    assert four[2] == four[3]
    two = together(2, lambda w: part(pipe, w, None, 5, 1), monkeypatch)
    assert [four[0], four[2]] == two


def test_no_two_ranks_draw_the_same_values_for_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(Numbers(100)).filter(most).batch(3).map(lambda b: float(headrace.rng().random()))
    drawn = together(3, lambda w: part(pipe, w, None, None, 1)[0], monkeypatch)
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
    whole = together(2, lambda w: part(pipe, w, None, None, 1)[0], monkeypatch)
    everything = [value for rank in whole for _, value in flat(rank)]
    assert len(set(everything)) == len(everything) == 60
    replicated = together(4, lambda w: part(pipe, w, None, None, 1)[0], monkeypatch, replicas=2)
    assert replicated == [whole[0], whole[0], whole[1], whole[1]]
    first = together(2, lambda w: part(pipe, w, None, 5, 1), monkeypatch)
    rest = together(2, lambda w: part(pipe, w, first[0][1], None, 1)[0], monkeypatch)
    assert [begun + more for (begun, _), more in zip(first, rest, strict=True)] == whole


@pytest.mark.parametrize("shape", ["filtered batches", "filtered samples"])
def test_a_mutated_snapshot_of_a_job_is_refused_or_gives_samples(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(shape)
    pipe, told = SHAPES[shape], 0
    first = together(3, lambda w: part(pipe, w, None, 5, 1), monkeypatch)
    then = together(2, lambda w: part(pipe, w, first[0][1], 3, 1), monkeypatch)
    for i in range(depth(300, 5000)):
        state = mutated(json.loads((first if i % 2 else then)[0][1]), chance)
        try:
            with Loader(pipe, seed=5) as loader:
                loader.load_state_dict(state)
                samples = iter(loader)
                for _ in range(5):
                    next(samples, None)
        except SnapshotRefused:
            told += 1
    assert told > depth(100, 2000)


@pytest.mark.parametrize("bad", [3, 77, 290])
def test_an_error_of_one_sample_costs_no_other_where_positions_are_taken_in_turn(
    bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(x: int) -> int:
        if x == bad and calm:
            raise KeyError(x)
        return x

    calm: list[bool] = []
    pipe = Pipe.of(Numbers(301)).shuffle().map(picky).filter(lambda x: x % 5 > 1 or x == bad).map(keyed)
    whole = values(pipe)
    ranks_got = together(2, lambda w: part(pipe, w, None, 5, 1), monkeypatch)
    delivered = [v for got, _ in ranks_got for v in got]
    calm.append(False)  # from here on it fails
    with Loader(pipe, seed=5, workers=2, kind="thread") as loader:
        loader.load_state_dict(json.loads(ranks_got[0][1]))
        samples, errors = iter(loader), 0
        while True:
            try:
                delivered.append(next(samples))
            except StopIteration:
                break
            except KeyError:
                errors += 1
                state = json.loads(json.dumps(loader.state_dict()))
                before = list(delivered)
    missing = set(whole) - set(delivered)
    assert len(delivered) == len(set(delivered)), "nothing comes twice"
    assert {x for x, _ in missing} <= {bad}
    assert errors == len(missing)
    if errors:
        calm.clear()
        with Loader(pipe, seed=5) as loader:
            loader.load_state_dict(state)
            assert sorted(before + list(loader)) == sorted(whole), "a snapshot stands before the error"
