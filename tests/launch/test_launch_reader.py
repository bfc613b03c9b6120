"""The thread between ranks and the TaggedOutput."""

import io
import os
import subprocess
from collections.abc import Iterator

import pytest

from headrace.launch.output import TaggedOutput
from headrace.launch.reader import OutputReader


class Page(TaggedOutput):
    def __init__(self) -> None:
        self.out, self.err = io.BytesIO(), io.BytesIO()
        super().__init__(self.out, self.err)


@pytest.fixture
def reader() -> Iterator[OutputReader]:
    made = OutputReader(Page())
    yield made
    made.close()


def text(reader: OutputReader) -> bytes:
    assert isinstance(reader.output, Page)
    return reader.output.out.getvalue()


@pytest.mark.usefixtures("no_new_fds")
def test_what_was_written_before_drain_is_shown_though_the_writing_end_stays_open(reader: OutputReader) -> None:
    writing = reader.stream(3, "stdout")
    os.write(writing, b"one\ntwo")
    reader.drain()
    assert text(reader) == b"[rank 3] one\n[rank 3] two\n"
    os.close(writing)


def test_a_stream_ends_by_itself_when_nobody_can_write(reader: OutputReader) -> None:
    for number in range(100):
        writing = reader.stream(0, "stdout")
        os.write(writing, b"%d" % number)
        os.close(writing)
    reader.drain()
    assert sorted(text(reader).splitlines()) == sorted(b"[rank 0] %d" % number for number in range(100))


def test_ranks_are_noted_in_the_order_of_their_end(reader: OutputReader) -> None:
    ranks = {rank: subprocess.Popen(["cat"], stdin=subprocess.PIPE) for rank in range(4)}
    reader.watch({rank: process.pid for rank, process in ranks.items()})
    for rank in (2, 0, 3, 1):
        process = ranks[rank]
        assert process.stdin
        process.stdin.close()
        # without reaping: the thread must see the end by itself
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        while rank not in reader.ended:
            os.sched_yield()
    reader.drain()
    assert reader.ended == [2, 0, 3, 1]
    for process in ranks.values():
        process.wait()


def test_a_process_that_is_gone_before_it_is_watched_counts_as_ended(reader: OutputReader) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    reader.watch({7: process.pid})
    assert reader.ended == [7]


def test_closing_twice_is_harmless(no_new_fds: object) -> None:
    reader = OutputReader(Page())
    writing = reader.stream(0, "stdout")
    os.write(writing, b"last words")
    reader.close()
    reader.close()
    os.close(writing)
    assert text(reader) == b"[rank 0] last words\n"
