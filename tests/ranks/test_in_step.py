"""Ranks that deliver their own batches in step: equal steps whatever they hold, one place for all, no needless wait."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.engine.feeds.positions import Position
from headrace.engine.places import JobPlace, RunPlace
from headrace.errors import BadOption, BadPipe, Closed, RanksDisagree, SnapshotRefused, WorkerStuck
from headrace.ranks import exchange as exchanges
from headrace.ranks.exchange import Exchange, Told
from headrace.sharing.in_step import HANDFUL, EqualSteps
from tests.depth import depth
from tests.laws.pipes import Numbers, odd, stream
from tests.ranks.test_exchange import Stuck, ranks_do
from tests.ranks.together import Meeting, Seat, together


class Source(Iterator[int]):
    """0, 1, 2 ... up to a length, or up to an error."""

    consistent = True

    def __init__(self, length: int, fails: int | None = None) -> None:
        self.at = 0
        self._length = length
        self._fails = fails

    def __next__(self) -> int:
        if self.at == self._fails:
            raise KeyError("mine")
        if self.at == self._length:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def place(self) -> RunPlace:
        return RunPlace(Position(self.at))

    def mask(self) -> None:
        return None


def in_step(exchange: Exchange, source: Source, handful: int = HANDFUL, epoch: int = 0, rank: int = 0) -> EqualSteps:
    return EqualSteps(exchange.epoch(epoch), rank, None, handful=handful).of(source)


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=4)


@settings(max_examples=depth(60, 2000))
@given(LENGTHS, st.integers(1, 5))
def test_all_ranks_make_as_many_steps_as_the_shortest_and_know_where_all_stand(
    lengths: list[int], handful: int
) -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        source = Source(lengths[rank])
        samples = in_step(exchange, source, handful, rank=rank)
        got = []
        for sample in samples:
            got.append(sample)
            place = samples.place()
            assert isinstance(place, JobPlace)
            stood = [at.place.position for at in place.ranks if isinstance(at.place, Position)]
            assert [at + place.steps for at in stood] == [len(got)] * len(lengths)
            assert samples.place(len(got) - 1) == JobPlace(place.steps - 1, place.ranks), "one was not received yet"
            assert source.at - len(got) < 2 * handful, "as many as two handfuls are held at the most"
        return got, samples.surplus

    steps = min(lengths)
    assert ranks_do(len(lengths), body) == [(list(range(steps)), length - steps) for length in lengths]


@settings(max_examples=depth(60, 2000))
@given(LENGTHS, st.integers(1, 5), st.integers(0, 29), st.integers(0, 3))
def test_a_rank_that_fails_ends_the_epoch_of_all_after_the_same_step(
    lengths: list[int], handful: int, fails: int, who: int
) -> None:
    who %= len(lengths)
    lengths[who] = fails + 1
    steps = min(*lengths, fails)
    got: list[list[int]] = [[] for _ in lengths]

    def body(rank: int, exchange: Exchange) -> Any:
        samples = in_step(exchange, Source(lengths[rank], fails if rank == who else None), handful, rank=rank)
        try:
            for sample in samples:
                got[rank].append(sample)
        except Exception as error:
            with pytest.raises(StopIteration):
                next(samples)
            return error
        return None

    errors = ranks_do(len(lengths), body)
    assert got == [list(range(steps))] * len(lengths)
    assert isinstance(errors[who], KeyError)
    # An error in what nobody gets, in a later handful than the end, is that rank's alone.
    told = fails // handful <= min(lengths) // handful
    for rank, error in enumerate(errors):
        if rank != who:
            assert (
                type(error) is RuntimeError and f"another rank failed (rank {who}: KeyError: 'mine')" in str(error)
            ) == told


@settings(max_examples=depth(60, 2000))
@given(LENGTHS, st.integers(0, 29), st.integers(1, 5))
def test_steps_that_were_made_since_ranks_last_told_each_other_are_made_once_more(
    lengths: list[int], cut: int, handful: int
) -> None:
    """The run continues where it stood before the handful at hand, and passes over what was delivered of it."""
    steps = min(lengths)
    if cut >= steps:
        return

    def body(rank: int, exchange: Exchange) -> Any:
        samples = in_step(exchange, Source(lengths[rank]), handful, rank=rank)
        first = [next(samples) for _ in range(cut)]
        place = samples.place()
        samples.leave()
        source = Source(lengths[rank])
        behind = 0
        if isinstance(place, JobPlace):
            stood = place.ranks[rank].place
            assert isinstance(stood, Position)
            source.at, behind = stood.position, place.steps
        again = EqualSteps(exchange.epoch(0), rank, place, behind, handful=handful).of(source)
        assert again.place() == place
        return first + list(again)

    assert ranks_do(len(lengths), body) == [list(range(steps))] * len(lengths)


@settings(max_examples=depth(60, 2000))
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=4), st.integers(1, 5))
def test_epochs_that_ranks_leave_after_any_step_do_not_mix_with_the_next(
    breaks: list[tuple[int, int]], handful: int
) -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        got = []
        for epoch, steps in enumerate([*breaks[rank], 100]):
            samples = in_step(exchange, Source(25), handful, epoch, rank)
            got.append([sample for _, sample in zip(range(steps), samples, strict=False)])
            samples.leave()
        return got

    results = ranks_do(len(breaks), body)
    for (first, second), result in zip(breaks, results, strict=True):
        if isinstance(result, Exception):  # it was still in an epoch that others had left
            assert isinstance(result, RanksDisagree | RuntimeError)
            assert "has left" in str(result)
        else:
            assert result == [list(range(first)), list(range(second)), list(range(25))]
    if len(set(breaks)) == 1:
        assert not [result for result in results if isinstance(result, Exception)]


def test_a_rank_that_continues_in_an_epoch_that_others_have_left_stands_after_what_it_delivered() -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        samples = in_step(exchange, Source(50), epoch=7, rank=rank)
        assert next(samples) == 0
        if rank == 1:
            with pytest.raises(RanksDisagree, match=r"rank 0 has left epoch 7 and begun epoch 8.*same number of steps"):
                list(samples)
            assert samples.place() == JobPlace(HANDFUL, (Source(50).place(),) * 2), "what was granted was delivered"
        samples.leave()
        # Whoever was ahead has waited here for the other one.
        return list(in_step(exchange, Source(50), epoch=8, rank=rank))

    assert ranks_do(2, body) == [list(range(50))] * 2


class Recorded:
    """Rounds of one rank whose answers come when they are asked for."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._rounds = 0

    def begin(self, numbers: list[int], text: bytes = b"") -> Any:
        number, self._rounds = self._rounds, self._rounds + 1
        self.events.append(f"begin {number}")
        events = self.events

        class Later:
            def wait(self) -> list[Told]:
                events.append(f"wait {number}")
                return [Told(numbers, text)]

        return Later()


def test_a_round_is_begun_a_handful_of_steps_before_its_answer_is_needed() -> None:
    rounds: Any = Recorded()
    samples = EqualSteps(rounds, 0, None).of(Source(18))
    for sample in samples:
        rounds.events.append(str(sample))
    assert ", ".join(rounds.events) == (
        "begin 0, wait 0, 0, begin 1, 1, 2, 3, wait 1, begin 2, 4, 5, 6, 7, wait 2, begin 3, 8, 9, 10, 11, "
        "wait 3, begin 4, 12, 13, 14, 15, wait 4, 16, 17"
    )


def test_batches_that_were_granted_are_delivered_while_the_next_round_waits_for_another_rank() -> None:
    meeting = Meeting(2)
    mine, theirs = Exchange(Seat(meeting, 0), 20), Exchange(Seat(meeting, 1), 20)
    samples, slow = in_step(mine, Source(50)), in_step(theirs, Source(50), rank=1)
    first = threading.Thread(target=next, args=(slow,))
    first.start()
    # The other rank makes one step and stops: it has begun round 0 only, and this rank makes all steps of it.
    assert [next(samples) for _ in range(HANDFUL)] == [0, 1, 2, 3]
    first.join()
    rest: list[int] = []
    waiting = threading.Thread(target=lambda: rest.extend(samples))
    waiting.start()
    assert list(slow) == list(range(1, 50))
    waiting.join()
    assert rest == list(range(4, 50))
    mine.close()
    theirs.close()


def test_waiting_for_another_rank_ends_at_the_time_out() -> None:
    group = Stuck()
    exchange = Exchange(group, 0.05)
    samples = in_step(exchange, Source(9))
    with pytest.raises(WorkerStuck, match=r"after 0.05 s another rank has not said how far it is"):
        next(samples)
    with pytest.raises(StopIteration):
        next(samples)
    group.free.set()
    exchange.close()
    assert group.closed.wait(20)


def test_an_exchange_closed_by_another_thread_lets_a_reader_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "GRACE", 0.01)
    group = Stuck()
    exchange = Exchange(group, 20)
    samples = in_step(exchange, Source(9))
    raised: list[Exception] = []

    def read() -> None:
        try:
            next(samples)
        except Exception as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert group.entered.wait(20)
    samples.leave()
    exchange.close()
    reader.join(20)
    assert type(raised[0]) is Closed
    group.free.set()


def test_an_error_of_this_rank_comes_before_that_of_a_round_that_could_not_be_held() -> None:
    group = Stuck()
    group.free.set()
    exchange = Exchange(group, 20)
    samples = in_step(exchange, Source(9, fails=2))
    with pytest.raises(KeyError) as raised:
        next(samples)
    assert "the other ranks could not be told" in raised.value.__notes__[0]
    exchange.close()


# --- whole loaders ----------------------------------------------------------------------------------------------------

Read = Callable[[World], Any]
THREAD: dict[str, Any] = {"workers": 1, "kind": "thread"}
"""Never inline: that lends itself the generators of the whole process, and here ranks are threads of one."""


def most(x: int) -> bool:
    return x % 5 > 1


SHAPES: dict[str, Pipe[Any]] = {
    "stream": Pipe.of(stream(200)).sharding_filter().filter(odd).batch(2),
    "stream of single samples": Pipe.of(stream(60)).sharding_filter().filter(odd),
    "grouped again": Pipe.of(Numbers(600))
    .shuffle()
    .filter(odd)
    .batch(2)
    .filter(lambda b: b[0] % 3 > 0)
    .unbatch()
    .batch(3),
    "in the consumer": Pipe.of(Numbers(120)).filter(most).sharding_filter().batch(2).enumerate(),
}


def part(pipe: Pipe[Any], world: World, state: Any = None, steps: int | None = None, workers: int = 1) -> Any:
    """What one rank gets of a job that stops after so many steps, and the snapshot then."""
    with Loader(pipe, seed=5, world=world, workers=workers, kind="thread") as loader:
        if state is not None:
            loader.load_state_dict(json.loads(state))
        got: list[Any] = []
        for sample in loader:
            got.append(sample)
            if len(got) == steps:
                break
        return got, json.dumps(loader.state_dict())


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_snapshot_after_any_step_continues_with_the_step_after_it(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, ranks = SHAPES[shape], 3

    def whole(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, **THREAD) as loader:
            return [(batch, json.dumps(loader.state_dict())) for batch in loader]

    everyone = together(ranks, whole, monkeypatch)
    steps = len(everyone[0])
    assert steps > HANDFUL
    for states in zip(*([state for _, state in rank] for rank in everyone), strict=True):
        assert len(set(states)) == 1, "one snapshot for the whole job"
    for step in range(1, steps + 1, depth(3, 1)):
        state = everyone[0][step - 1][1]
        then = together(ranks, lambda w, s=state: part(pipe, w, s)[0], monkeypatch)
        assert then == [[batch for batch, _ in rank[step:]] for rank in everyone]


@pytest.mark.parametrize("shape", list(SHAPES))
def test_such_pipes_continue_in_a_world_of_the_same_size_only(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SHAPES[shape]
    whole = together(3, lambda w: part(pipe, w)[0], monkeypatch)
    for steps in (3, 8):
        first = together(3, lambda w, u=steps: part(pipe, w, None, u, 2), monkeypatch)
        assert len({text for _, text in first}) == 1
        state = first[0][1]
        then = together(3, lambda w, s=state: part(pipe, w, s), monkeypatch)
        assert [a + b for (a, _), (b, _) in zip(first, then, strict=True)] == whole
        for ranks in (1, 2, 4):
            with pytest.raises(SnapshotRefused, match="taken on 3 ranks"):
                together(ranks, lambda w, s=state: part(pipe, w, s), monkeypatch)


MASKED = Pipe.of(stream(90)).sharding_filter().filter(most).batch(4).map(list)


@pytest.mark.parametrize("ends", ["pad", "repeat", "short", "drop"])
def test_the_mask_is_that_of_the_batch_delivered_last(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World) -> Any:
        with Loader(MASKED, seed=5, world=world, ends=ends, **THREAD) as loader:
            assert loader.mask() is None
            return [(batch, loader.mask()) for batch in loader]

    got = together(2, body, monkeypatch)
    assert len({len(rank) for rank in got}) == 1
    everything: list[int] = []
    filled = 0
    for rank in got:
        mine: list[int] = []
        for batch, mask in rank:
            if ends != "short":
                assert len(batch) == 4
            mine += [x for x, true in zip(batch, mask or [True] * len(batch), strict=True) if true]
            fill = [x for x, true in zip(batch, mask or [True] * len(batch), strict=True) if not true]
            filled += len(fill)
            # What fills the last batch of a rank is that rank's own.
            assert fill == ([mine[-1]] * len(fill) if ends == "pad" else mine[: len(fill)])
        everything += mine
    assert len(set(everything)) == len(everything), "disjoint without the mask"
    assert filled if ends in ("pad", "repeat") else not filled


def test_no_mask_is_told_where_batches_are_filled_before_they_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(stream(250)).sharding_filter().batch(4).filter(lambda b: b[0] % 3 > 0)

    def body(world: World, ends: Any) -> Any:
        with Loader(pipe, seed=5, world=world, ends=ends, **THREAD) as loader:
            batches = iter(loader)
            next(batches)
            return loader.mask()

    assert together(2, lambda w: body(w, "short"), monkeypatch) == [None, None]
    with pytest.raises(BadOption, match="batch at the end of the pipe"):
        together(2, lambda w: body(w, "pad"), monkeypatch)


def test_an_epoch_without_a_step_is_an_error_where_there_are_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def filtered(keep: Callable[[int], bool]) -> Any:
        pipe = Pipe.of(stream(67)).sharding_filter().filter(keep).batch(4)
        return together(3, lambda w: part(pipe, w)[0], monkeypatch)

    with pytest.raises(BadPipe, match=r"no step of this epoch can be made: .*none on rank [01], [12]"):
        filtered(lambda x: x == 40)
    assert filtered(lambda x: x > 100) == [[], [], []]
    with pytest.raises(BadPipe, match=r"none on rank 0, 2,"):
        filtered(lambda x: x % 3 == 1)
