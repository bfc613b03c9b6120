"""Votes of simulated ranks: equal steps whatever ranks hold, one place for all, and nobody waits without need."""

import json
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from headrace.ranks.vote import Rows, RowsTest, VoteThread
from headrace.sharing.equal_steps import EqualSteps
from headrace.sharing.voting import HANDFUL, StepVotes
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.engine.feeds.positions import Position
from headrace.engine.places import RunningEpoch, RunPlace, VotedPlace
from headrace.errors import BadOption, Closed, RanksDisagree, WorkerStuck
from headrace.ranks import vote as votes
from tests.conftest import RunScript
from tests.depth import depth
from tests.laws.pipes import Numbers, odd, stream
from tests.ranks.test_turns import SHAPES, most, part
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


def never_again(at: RunPlace) -> RunningEpoch:
    raise AssertionError("what is left of a stream cannot be dealt anew")


def vote(thread: VoteThread, source: Source, handful: int = HANDFUL, epoch: int = 0) -> tuple[EqualSteps, StepVotes]:
    steps = StepVotes(thread.begin(epoch), 0, handful=handful)
    return EqualSteps(steps, source, never_again), steps


def ranks_do(ranks: int, body: Callable[[int, VoteThread], Any]) -> list[Any]:
    """What `body` returns, or raises, on each rank; each has a thread."""
    meeting = Meeting(ranks)
    results: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        thread = VoteThread(Seat(meeting, rank), 20)
        try:
            results[rank] = body(rank, thread)
        except Exception as error:
            results[rank] = error
        thread.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=4)


@settings(max_examples=depth(60, 2000))
@given(LENGTHS, st.integers(1, 5))
def test_all_ranks_make_as_many_steps_as_the_shortest_and_know_where_all_stand(
    lengths: list[int], handful: int
) -> None:
    def body(rank: int, thread: VoteThread) -> Any:
        source = Source(lengths[rank])
        steps = StepVotes(thread.begin(0), rank, handful=handful)
        samples = EqualSteps(steps, source, never_again)
        got = []
        for sample in samples:
            got.append(sample)
            place = steps.place()
            assert isinstance(place, VotedPlace)
            stood = [at.place.position for at in place.ranks if isinstance(at.place, Position)]
            assert [at + place.steps for at in stood] == [len(got)] * len(lengths)
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

    def body(rank: int, thread: VoteThread) -> Any:
        samples, _ = vote(thread, Source(lengths[rank], fails if rank == who else None), handful)
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
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=4), st.integers(1, 5))
def test_epochs_that_ranks_leave_after_any_step_do_not_mix_with_the_next(
    breaks: list[tuple[int, int]], handful: int
) -> None:
    def body(rank: int, thread: VoteThread) -> Any:
        got = []
        for epoch, steps in enumerate([*breaks[rank], 100]):
            samples, _ = vote(thread, Source(25), handful, epoch)
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


def test_a_rank_that_goes_on_in_an_epoch_that_others_have_left_is_told_who() -> None:
    def body(rank: int, thread: VoteThread) -> Any:
        samples, steps = vote(thread, Source(50), epoch=7)
        assert next(samples) == 0
        if rank == 1:
            with pytest.raises(RanksDisagree, match=r"rank 0 has left epoch 7 and begun epoch 8.*same number of steps"):
                list(samples)
            assert steps.place() == VotedPlace(HANDFUL, (Source(50).place(),)), "what was granted was delivered"
        samples.leave()
        # Whoever was ahead has waited here for the other one.
        return list(vote(thread, Source(50), epoch=8)[0])

    assert ranks_do(2, body) == [list(range(50))] * 2


def test_a_rank_that_settles_the_next_epoch_tells_those_that_are_still_inside_the_last_one() -> None:
    numbers = [2**63 + 5, 3, 4]

    def body(rank: int, thread: VoteThread) -> Any:
        got = []
        for _ in range(2):
            epoch = thread.broadcast(numbers[rank])
            samples, _ = vote(thread, Source(50), epoch=epoch)
            got.append(epoch)
            if len(got) == 2:
                assert list(samples) == list(range(50))
            elif rank == 1:
                assert next(samples) == 0
            else:
                with pytest.raises(RanksDisagree, match=r"rank 1 has left epoch 5 and begun the next epoch"):
                    list(samples)
            samples.leave()
        return got

    assert ranks_do(3, body) == [[numbers[0]] * 2] * 3


def test_ranks_that_begin_different_epochs_are_told() -> None:
    def body(rank: int, thread: VoteThread) -> Any:
        samples, _ = vote(thread, Source(50), epoch=rank)
        return list(samples)

    for result in ranks_do(2, body):
        assert isinstance(result, RanksDisagree)
        assert "is in epoch" in str(result)


class Recorded:
    """A poll of one rank whose answers come when they are asked for."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._votes = 0

    def again(self) -> "Recorded":
        raise AssertionError("nothing is dealt anew")

    def cast(self, row: list[int], text: bytes, last: RowsTest, talk: RowsTest) -> Any:
        number, self._votes = self._votes, self._votes + 1
        self.events.append(f"cast {number}")
        poll = self

        class Later:
            def wait(self) -> tuple[Rows, list[bytes]]:
                poll.events.append(f"wait {number}")
                return [row], [text]

        return Later()


def test_a_vote_is_cast_a_handful_of_steps_before_its_answer_is_needed() -> None:
    poll, source = Recorded(), Source(18)
    samples = EqualSteps(StepVotes(poll, 0), source, never_again)
    for sample in samples:
        poll.events.append(str(sample))
    assert ", ".join(poll.events) == (
        "cast 0, wait 0, 0, cast 1, 1, 2, 3, wait 1, cast 2, 4, 5, 6, 7, wait 2, cast 3, 8, 9, 10, 11, "
        "wait 3, cast 4, 12, 13, 14, 15, wait 4, 16, 17"
    )


def test_batches_that_were_granted_are_delivered_while_the_next_vote_waits_for_another_rank() -> None:
    meeting = Meeting(2)
    mine, theirs = VoteThread(Seat(meeting, 0), 20), VoteThread(Seat(meeting, 1), 20)
    samples, _ = vote(mine, Source(50))
    slow, _ = vote(theirs, Source(50))
    first = threading.Thread(target=next, args=(slow,))
    first.start()
    # The other rank makes one step and stops: it has cast vote 0 only, and this rank makes all steps of it.
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


def never(rows: Rows) -> bool:
    return False


class Stuck:
    """A group on which nobody else ever comes, until it is let go."""

    def __init__(self) -> None:
        self.entered, self.free, self.closed = threading.Event(), threading.Event(), threading.Event()

    def rows(self, row: list[int]) -> Rows:
        self.entered.set()
        assert self.free.wait(20)
        raise ConnectionError("closed by peer")

    def texts(self, text: bytes) -> list[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        self.closed.set()


def test_closing_while_a_vote_is_under_way_returns_and_the_thread_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "GRACE", 0.01)
    group = Stuck()
    thread = VoteThread(group, 20)
    answer = thread.begin(0).cast([1], b"", never, never)
    assert group.entered.wait(20)
    thread.close()
    assert not group.closed.is_set(), "it is still in use"
    with pytest.raises(Closed):
        answer.wait()
    with pytest.raises(Closed):
        thread.begin(1).cast([1], b"", never, never)
    group.free.set()
    assert group.closed.wait(20)
    assert thread._working.acquire(timeout=20)
    assert thread._ident not in votes.VOTING


def test_waiting_for_a_vote_ends_at_the_time_out() -> None:
    group = Stuck()
    thread = VoteThread(group, 0.05)
    samples, _ = vote(thread, Source(9))
    with pytest.raises(WorkerStuck, match=r"after 0.05 s another rank has not come to the vote"):
        next(samples)
    with pytest.raises(StopIteration):
        next(samples)
    group.free.set()
    thread.close()
    assert group.closed.wait(20)


def test_a_loader_closed_by_another_thread_lets_a_reader_go_that_waits_for_a_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(votes, "GRACE", 0.01)
    group = Stuck()
    thread = VoteThread(group, 20)
    samples, _ = vote(thread, Source(9))
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
    thread.close()
    reader.join(20)
    assert type(raised[0]) is Closed
    group.free.set()


def test_ranks_are_told_of_a_peer_that_is_gone_in_words_of_their_own() -> None:
    group = Stuck()
    group.free.set()
    thread = VoteThread(group, 20)
    for _ in range(2):  # the group is of no use any more
        samples, _ = vote(thread, Source(9))
        with pytest.raises(RuntimeError, match=r"another rank has left the job.*closed by peer"):
            next(samples)
    thread.close()


def test_an_error_of_this_rank_comes_before_that_of_a_vote_that_could_not_be_held() -> None:
    group = Stuck()
    group.free.set()
    thread = VoteThread(group, 20)
    samples, _ = vote(thread, Source(9, fails=2))
    with pytest.raises(KeyError) as raised:
        next(samples)
    assert "the other ranks could not be told" in raised.value.__notes__[0]
    thread.close()


def test_a_booth_that_was_never_used_closes_its_group() -> None:
    group = Stuck()
    VoteThread(group, 20).close()
    assert group.closed.is_set()


def test_a_forked_copy_of_a_rank_neither_votes_nor_closes(run_script: RunScript) -> None:
    done = run_script("""
        import os
        from headrace.ranks.vote import VoteThread
        from headrace.errors import Closed

        class Group:
            closed = False
            def rows(self, row): return [row]
            def texts(self, text): return [text]
            def close(self): self.closed = True

        never = lambda rows: False
        group = Group()
        thread = VoteThread(group, 20)
        poll = thread.begin(0)
        answer = poll.cast([1], b"", never, never)
        pid = os.fork()
        if not pid:
            refused = 0
            for what in (answer.wait, lambda: poll.cast([2], b"", never, never)):
                try:
                    what()
                except Closed as error:
                    refused += f"process {os.getppid()}" in str(error)
            thread.close()
            os._exit(0 if refused == 2 and not group.closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert answer.wait() == ([[1]], [])
        thread.close()
        assert group.closed
    """)
    assert done.returncode == 0, done.stderr


# --- whole loaders ----------------------------------------------------------------------------------------------------

OTHERS = {
    "stream": Pipe.of(stream(120)).sharding_filter().filter(odd).batch(2),
    "batches": Pipe.of(Numbers(250)).shuffle().batch(4).filter(lambda b: b[0] % 3 > 0),
}


@pytest.mark.parametrize("shape", ["filtered batches", "stream", "batches"])
def test_a_snapshot_after_any_step_goes_on_with_the_step_after_it(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SHAPES[shape] if shape in SHAPES else OTHERS[shape]
    ranks = 3

    def whole(world: World) -> Any:
        got, states = [], []
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            for batch in loader:
                got.append(batch)
                states.append(json.dumps(loader.state_dict()))
        return got, states

    everyone = together(ranks, whole, monkeypatch)
    steps = len(everyone[0][0])
    assert steps > 2 * HANDFUL
    for states in zip(*(states for _, states in everyone), strict=True):
        assert len(set(states)) == 1, "one snapshot for the whole job"
    for step in range(1, steps + 1, depth(2, 1)):
        state = everyone[0][1][step - 1]
        then = together(ranks, lambda w, s=state: part(pipe, w, s, None, 1)[0], monkeypatch)
        assert then == [got[step:] for got, _ in everyone]


@pytest.mark.parametrize("pipe", [SHAPES["filtered batches"], Pipe.of(Numbers(30)).batch(4)])
def test_loaders_agree_on_what_rank_zero_says(pipe: Pipe[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            loader.set_epoch(loader.agree(world.rank + 10))
            return loader.epoch, len(list(loader)), loader.agree(2**64 - 1 - world.rank)

    assert Loader(pipe).agree(7) == 7
    first, second = together(2, body, monkeypatch)
    assert first == second == (10, first[1], 2**64 - 1)


def test_two_epochs_can_be_read_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SHAPES["filtered batches"]

    def body(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            return list(zip(loader, loader, strict=False)), list(loader)

    both = together(2, body, monkeypatch)
    one = together(2, lambda w: part(pipe, w, None, None, 1)[0], monkeypatch)
    for (pairs, third), alone in zip(both, one, strict=True):
        assert [first for first, _ in pairs] == alone[: len(pairs)]
        assert len(pairs) > 2 * HANDFUL
        assert third


MASKED = {
    "indexed": Pipe.of(Numbers(90)).shuffle().filter(most).batch(4),
    "streamed": Pipe.of(stream(90)).sharding_filter().filter(most).batch(4).map(list),
}


@pytest.mark.parametrize("ends", ["pad", "repeat", "short", "drop"])
@pytest.mark.parametrize("shape", list(MASKED))
def test_the_mask_is_that_of_the_batch_delivered_last(shape: str, ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World) -> Any:
        with Loader(MASKED[shape], seed=5, world=world, ends=ends, workers=1, kind="thread") as loader:
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
            # Behind a filter what fills the last batch of a rank is that rank's own.
            assert fill == ([mine[-1]] * len(fill) if ends == "pad" else mine[: len(fill)])
        everything += mine
    assert len(set(everything)) == len(everything), "disjoint without the mask"
    assert filled if ends in ("pad", "repeat") else not filled


def test_no_mask_is_told_where_batches_are_filled_before_they_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World, ends: Any) -> Any:
        with Loader(OTHERS["batches"], seed=5, world=world, ends=ends, workers=1, kind="thread") as loader:
            batches = iter(loader)
            next(batches)
            return loader.mask()

    assert together(2, lambda w: body(w, "short"), monkeypatch) == [None, None]
    with pytest.raises(BadOption, match="batch at the end of the pipe"):
        together(2, lambda w: body(w, "pad"), monkeypatch)


def test_closing_a_loader_after_a_break_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in range(1, 12):
        together(2, lambda w, u=steps: part(SHAPES["filtered batches"], w, None, u, 1), monkeypatch)
        assert not votes.VOTING


def test_a_loader_that_is_closed_is_an_error_for_those_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World) -> Any:
        with Loader(SHAPES["filtered batches"], seed=5, world=world, workers=1, kind="thread") as loader:
            if world.rank == 0:
                return [next(iter(loader))]
            with pytest.raises(RuntimeError, match="another rank has left the job, or closed its loader"):
                for _ in loader:
                    pass
            return loader.state_dict()["at"]["place"]["number"]

    _, steps, as_many = together(3, body, monkeypatch)
    assert steps == as_many == HANDFUL


def test_places_of_steps_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(world: World) -> Any:
        with Loader(SHAPES["filtered batches"], seed=5, world=world, workers=1, kind="thread") as loader:
            return [loader.state_dict()["at"]["place"]["source"]["progress"][0] for _ in loader]

    for behind in together(3, body, monkeypatch):
        assert all(a <= b for a, b in pairwise(behind))
