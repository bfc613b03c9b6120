"""The thread between ranks and the Screen."""

import io
import os
import subprocess
from collections.abc import Iterator

import pytest

from headrace.launch.output import Screen
from headrace.launch.pump import Pump


class Page(Screen):
    def __init__(self) -> None:
        self.out, self.err = io.BytesIO(), io.BytesIO()
        super().__init__(self.out, self.err)


@pytest.fixture
def pump() -> Iterator[Pump]:
    made = Pump(Page())
    yield made
    made.close()


def text(pump: Pump) -> bytes:
    assert isinstance(pump.screen, Page)
    return pump.screen.out.getvalue()


@pytest.mark.usefixtures("no_new_fds")
def test_what_was_written_before_drain_is_shown_though_the_writing_end_stays_open(pump: Pump) -> None:
    writing = pump.stream(3, "stdout")
    os.write(writing, b"one\ntwo")
    pump.drain()
    assert text(pump) == b"[rank 3] one\n[rank 3] two\n"
    os.close(writing)


def test_a_stream_ends_by_itself_when_nobody_can_write(pump: Pump) -> None:
    for number in range(100):
        writing = pump.stream(0, "stdout")
        os.write(writing, b"%d" % number)
        os.close(writing)
    pump.drain()
    assert sorted(text(pump).splitlines()) == sorted(b"[rank 0] %d" % number for number in range(100))


def test_ranks_are_noted_in_the_order_of_their_end(pump: Pump) -> None:
    ranks = {rank: subprocess.Popen(["cat"], stdin=subprocess.PIPE) for rank in range(4)}
    pump.watch({rank: process.pid for rank, process in ranks.items()})
    for rank in (2, 0, 3, 1):
        process = ranks[rank]
        assert process.stdin
        process.stdin.close()
        # without reaping: the thread must see the end by itself
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        while rank not in pump.ended:
            os.sched_yield()
    pump.drain()
    assert pump.ended == [2, 0, 3, 1]
    for process in ranks.values():
        process.wait()


def test_a_process_that_is_gone_before_it_is_watched_counts_as_ended(pump: Pump) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    pump.watch({7: process.pid})
    assert pump.ended == [7]


def test_closing_twice_is_harmless(no_new_fds: object) -> None:
    pump = Pump(Page())
    writing = pump.stream(0, "stdout")
    os.write(writing, b"last words")
    pump.close()
    pump.close()
    os.close(writing)
    assert text(pump) == b"[rank 0] last words\n"
