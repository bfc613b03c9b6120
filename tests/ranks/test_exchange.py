"""Rounds of simulated ranks: everybody is told what everybody gave, epochs never mix, and nobody waits without end."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import Closed, RanksDisagree, WorkerStuck
from headrace.ranks import exchange as exchanges
from headrace.ranks.exchange import ROOM, WIDTH, EpochRounds, Exchange, Rows
from tests.conftest import RunScript
from tests.depth import depth
from tests.ranks.together import Meeting, Seat

BREAKS = st.lists(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=2), min_size=2, max_size=4)
ROUNDS = 5
"""Of a whole epoch."""


def ranks_do(ranks: int, body: Callable[[int, Exchange], Any]) -> list[Any]:
    """What `body` returns, or raises, on each rank; each has an exchange."""
    meeting = Meeting(ranks)
    results: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        exchange = Exchange(Seat(meeting, rank), 20)
        try:
            results[rank] = body(rank, exchange)
        except Exception as error:
            results[rank] = error
        exchange.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def whole(rounds: EpochRounds, rank: int) -> list[list[int]]:
    """All rounds of an epoch: what each rank gave in each."""
    assert rounds.epoch is not None
    given = [rounds.begin([rounds.epoch, number, rank]).wait() for number in range(ROUNDS)]
    return [[x for told in row for x in told.numbers[:3]] for row in given]


def expected(epoch: int, ranks: int) -> list[list[int]]:
    return [[x for rank in range(ranks) for x in (epoch, number, rank)] for number in range(ROUNDS)]


@settings(max_examples=depth(60, 1000))
@given(st.integers(1, 4), st.data())
def test_every_rank_is_told_the_numbers_and_texts_of_all(ranks: int, data: st.DataObject) -> None:
    numbers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=ROOM)
    text = st.one_of(
        st.binary(max_size=20), st.integers(0, 3 * 8 * WIDTH).map(lambda n: bytes(i % 251 for i in range(n)))
    )
    given_ = [[(data.draw(numbers), data.draw(text)) for _ in range(ranks)] for _ in range(3)]

    def body(rank: int, exchange: Exchange) -> Any:
        rounds = exchange.epoch(0)
        return [rounds.begin(*row[rank]).wait() for row in given_]

    for result in ranks_do(ranks, body):
        assert not isinstance(result, Exception), result
        for told, row in zip(result, given_, strict=True):
            for (got, got_text), (gave, text_given) in zip(told, row, strict=True):
                assert got == gave + [0] * (ROOM - len(gave))
                assert got_text == text_given


@settings(max_examples=depth(60, 2000))
@given(BREAKS)
def test_epochs_that_ranks_leave_after_any_round_do_not_mix_with_the_next(breaks: list[list[tuple[int, bool]]]) -> None:
    """Ranks leave with a round under way, too: begun and not waited for."""

    def body(rank: int, exchange: Exchange) -> Any:
        for epoch, (many, begun) in enumerate(breaks[rank]):
            rounds = exchange.epoch(epoch)
            for number in range(many):
                told = rounds.begin([epoch, number, rank]).wait()
                assert [t.numbers[:3] for t in told] == [[epoch, number, other] for other in range(len(breaks))]
            if begun:
                rounds.begin([epoch, many, rank])
        return whole(exchange.epoch(2), rank)

    results = ranks_do(len(breaks), body)
    for result in results:
        if isinstance(result, Exception):  # it was still in an epoch that others had left
            assert isinstance(result, RanksDisagree | RuntimeError)
            assert "has left" in str(result)
        else:
            assert result == expected(2, len(breaks))
    if len({tuple(many for many, _ in rank) for rank in breaks}) == 1:
        assert not [result for result in results if isinstance(result, Exception)]


def test_a_rank_that_continues_in_an_epoch_that_others_have_left_is_told_who() -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        rounds = exchange.epoch(7)
        rounds.begin([1]).wait()
        if rank == 1:
            with pytest.raises(RanksDisagree, match=r"rank 0 has left epoch 7 and begun epoch 8.*same number of steps"):
                rounds.begin([2]).wait()
            with pytest.raises(RuntimeError, match="this epoch has ended"):
                rounds.begin([3]).wait()
        # Whoever was ahead has waited here for the other one.
        return whole(exchange.epoch(8), rank)

    assert ranks_do(2, body) == [expected(8, 2)] * 2


def test_a_rank_that_settles_the_next_epoch_tells_those_that_are_still_inside_the_last_one() -> None:
    numbers = [2**63 + 5, 3, 4]

    def body(rank: int, exchange: Exchange) -> Any:
        got = [exchange.broadcast(numbers[rank])]
        rounds = exchange.epoch(got[0])
        if rank != 1:
            with pytest.raises(RanksDisagree, match=r"rank 1 has left epoch 5 and begun the next epoch"):
                rounds.begin([1]).wait()
        got.append(exchange.broadcast(numbers[rank]))
        exchange.epoch(got[1]).begin([1]).wait()
        return got

    assert ranks_do(3, body) == [[numbers[0]] * 2] * 3


def test_ranks_that_begin_different_epochs_are_told() -> None:
    for result in ranks_do(2, lambda rank, exchange: whole(exchange.epoch(rank), rank)):
        assert isinstance(result, RanksDisagree)
        assert "is in epoch" in str(result)
        assert "same epochs, in the same order" in str(result)


def test_a_round_that_all_have_begun_is_answered_without_waiting() -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        rounds = exchange.epoch(0)
        first, second = rounds.begin([rank]), rounds.begin([10 + rank])
        told = second.wait()
        assert first.answered, "rounds are answered in order"
        return [t.numbers[0] for t in told], [t.numbers[0] for t in first.wait()]

    assert ranks_do(3, body) == [([10, 11, 12], [0, 1, 2])] * 3


class Stuck:
    """A group on which nobody else ever comes, until it is let go."""

    def __init__(self) -> None:
        self.entered, self.free, self.closed = threading.Event(), threading.Event(), threading.Event()

    def rows(self, row: list[int]) -> Rows:
        self.entered.set()
        assert self.free.wait(20)
        raise ConnectionError("closed by peer")

    def close(self) -> None:
        self.closed.set()


def test_closing_while_a_round_is_under_way_returns_and_the_thread_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "GRACE", 0.01)
    group = Stuck()
    exchange = Exchange(group, 20)
    begun = exchange.epoch(0).begin([1])
    assert group.entered.wait(20)
    exchange.close()
    assert not group.closed.is_set(), "it is still in use"
    with pytest.raises(Closed):
        begun.wait()
    with pytest.raises(Closed):
        exchange.epoch(1).begin([1])
    group.free.set()
    assert group.closed.wait(20)
    assert exchange._working.acquire(timeout=20)
    assert exchange._ident not in exchanges.EXCHANGING


def test_closing_lets_a_round_that_is_under_way_come_to_its_end() -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        rounds = exchange.epoch(0)
        rounds.begin([rank]).wait()
        begun = rounds.begin([rank])
        if rank == 0:
            exchange.close()
            return None
        return [told.numbers[0] for told in begun.wait()]

    assert ranks_do(2, body) == [None, [0, 1]]


def test_waiting_for_a_round_ends_at_the_time_out() -> None:
    group = Stuck()
    exchange = Exchange(group, 0.05)
    with pytest.raises(WorkerStuck, match=r"after 0.05 s another rank has not said how far it is.*longer timeout"):
        exchange.epoch(0).begin([1]).wait()
    group.free.set()
    exchange.close()
    assert group.closed.wait(20)


def test_an_exchange_closed_by_another_thread_lets_a_reader_go_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "GRACE", 0.01)
    group = Stuck()
    exchange = Exchange(group, 20)
    raised: list[Exception] = []

    def read() -> None:
        try:
            exchange.epoch(0).begin([1]).wait()
        except Exception as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert group.entered.wait(20)
    exchange.close()
    reader.join(20)
    assert type(raised[0]) is Closed
    group.free.set()


def test_ranks_are_told_of_a_peer_that_is_gone_in_words_of_their_own() -> None:
    group = Stuck()
    group.free.set()
    exchange = Exchange(group, 20)
    for epoch in range(2):  # the group is of no use any more
        with pytest.raises(RuntimeError, match=r"another rank has left the job.*closed by peer"):
            exchange.epoch(epoch).begin([1]).wait()
    exchange.close()


def test_an_exchange_that_was_never_used_closes_its_group() -> None:
    group = Stuck()
    Exchange(group, 20).close()
    assert group.closed.is_set()


def test_closing_twice_is_closing_once() -> None:
    def body(rank: int, exchange: Exchange) -> Any:
        got = whole(exchange.epoch(0), rank)
        exchange.close()
        exchange.close()
        return got

    assert ranks_do(2, body) == [expected(0, 2)] * 2


def test_a_forked_copy_of_a_rank_neither_exchanges_nor_closes(run_script: RunScript) -> None:
    done = run_script("""
        import os
        from headrace.ranks.exchange import Exchange
        from headrace.errors import Closed

        class Group:
            closed = False
            def rows(self, row): return [row]
            def close(self): self.closed = True

        group = Group()
        exchange = Exchange(group, 20)
        rounds = exchange.epoch(0)
        begun = rounds.begin([1], b"text")
        pid = os.fork()
        if not pid:
            refused = 0
            for what in (begun.wait, lambda: rounds.begin([2])):
                try:
                    what()
                except Closed as error:
                    refused += f"process {os.getppid()}" in str(error)
            exchange.close()
            os._exit(0 if refused == 2 and not group.closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        (told,) = begun.wait()
        assert (told.numbers[0], told.text) == (1, b"text")
        exchange.close()
        assert group.closed
    """)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_while_a_round_is_waited_for_leaves_the_exchange_in_order(run_script: RunScript) -> None:
    done = run_script("""
        import signal, threading
        from headrace.ranks.exchange import Exchange

        class Group:
            def __init__(self):
                self.free = threading.Event()
            def rows(self, row):
                if not self.free.is_set():
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                    assert self.free.wait(20)
                return [row]
            def close(self): self.closed = True

        group = Group()
        exchange = Exchange(group, 20)
        rounds = exchange.epoch(0)
        begun = rounds.begin([1])
        try:
            begun.wait()
            raise AssertionError("no interrupt")
        except KeyboardInterrupt:
            group.free.set()
        assert begun.wait()[0].numbers[0] == 1
        assert rounds.begin([2]).wait()[0].numbers[0] == 2
        exchange.close()
        assert group.closed
    """)
    assert done.returncode == 0, done.stderr
