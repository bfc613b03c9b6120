"""Whole tagged lines of many streams, progress bars among them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.launch import output as launch_output
from headrace.launch.output import LineSplitter, RankPipes, TaggedOutput


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(*pieces: bytes) -> list[bytes]:
    lines = LineSplitter(Clock())
    return [line for piece in pieces for line in lines.feed(piece)] + lines.finish()


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"c\nd"], [b"abc", b"d"]),
        ([b"\n\n"], [b"", b""]),
        ([b""], []),
        ([b"dos\r\n", b"dos", b"\r", b"\n"], [b"dos", b"dos"]),
        ([b"\r 1%", b"\r 2%", b"\r 3%\n", b"done\n"], [b" 1%", b" 3%", b"done"]),
        ([b" 1%\r", b" 2%\r", b" 3%\r"], [b" 1%", b" 3%"]),
        ([b"\r 1%\r 2%"], [b" 1%", b" 2%"]),
        ([b"\r", b"\r"], []),
        ([b"\xff\x00\xfe\n"], [b"\xff\x00\xfe"]),
    ],
)
def test_lines_are_whole_and_a_carriage_return_ends_the_state_of_a_bar(pieces: list[bytes], lines: list[bytes]) -> None:
    assert shown(*pieces) == lines


@given(st.lists(st.binary(max_size=9).filter(lambda text: b"\r" not in text), max_size=20))
def test_how_text_is_cut_into_pieces_does_not_matter(pieces: list[bytes]) -> None:
    assert shown(*pieces) == shown(b"".join(pieces))
    assert b"\n".join(shown(*pieces)).rstrip(b"\n") == b"".join(pieces).rstrip(b"\n")


@given(st.lists(st.sampled_from([b"a", b"b\r", b"\r", b"\n", b"\r\n", b"cc"]), max_size=12), st.integers(1, 5))
def test_where_bars_are_cut_does_not_matter_either(pieces: list[bytes], size: int) -> None:
    text = b"".join(pieces)
    cut = [text[at : at + size] for at in range(0, len(text), size)]
    assert shown(*cut) == shown(text)


@pytest.mark.parametrize("form", [b"\r%d", b"%d\r"])
def test_a_long_bar_shows_its_state_once_a_second_and_its_last_one(form: bytes) -> None:
    clock = Clock()
    lines = LineSplitter(clock)
    out: list[bytes] = []
    for step in range(41):  # 4 seconds at 10 updates a second
        clock.now = step / 10
        out += lines.feed(form % step)
    out += lines.feed(b"\n")
    assert out[-1] == b"40"
    assert 5 <= len(out) <= 6
    assert [int(line) for line in out] == sorted(int(line) for line in out)


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_output, "LONGEST", 10)
    assert shown(b"x" * 25, b"\n") == [b"x" * 10, b"x" * 10, b"x" * 5]


def test_a_bar_that_never_ends_does_not_fill_the_memory() -> None:
    lines = LineSplitter(Clock())
    for step in range(1000):
        lines.feed(b"\r%d" % step)
    assert len(lines._rest) < 10


class Page:
    """Two files that ranks' output goes to."""

    def __init__(self, folder: Path) -> None:
        self._paths = folder / "out", folder / "err"
        self.files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in self._paths]

    def output(self, only: int | None = None) -> TaggedOutput:
        return TaggedOutput(*self.files, only)

    @property
    def out(self) -> bytes:
        return self._paths[0].read_bytes()

    @property
    def err(self) -> bytes:
        return self._paths[1].read_bytes()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    page = Page(tmp_path)
    yield page
    for file in page.files:
        os.close(file)


def test_each_line_carries_its_rank_and_its_stream_and_goes_to_it(page: Page) -> None:
    output = page.output()
    output.show(0, "stdout", [b"one", b"two"])
    output.show(12, "stderr", [b"oh"])
    output.show(1, "stdout", [])
    output.say("a message")
    assert page.out == b"[1,0]<stdout>:one\n[1,0]<stdout>:two\n"
    assert page.err == b"[1,12]<stderr>:oh\nheadrace: a message\n"


def test_of_a_hidden_rank_what_it_says_to_stderr_is_shown(page: Page) -> None:
    output = page.output(only=0)
    for rank in range(2):
        output.show(rank, "stdout", [b"out"])
        output.show(rank, "stderr", [b"err"])
    assert page.out == b"[1,0]<stdout>:out\n"
    assert page.err == b"[1,0]<stderr>:err\n[1,1]<stderr>:err\n"


def test_a_reader_that_has_gone_is_noticed_once() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    calls: list[str] = []
    output = TaggedOutput(writing, writing)
    output.on_broken = lambda: calls.append("broken")
    output.show(0, "stdout", [b"a"])
    output.show(0, "stdout", [b"b"])
    os.close(writing)
    assert calls == ["broken"]
    assert isinstance(output.broken, BrokenPipeError)


def test_a_reader_that_is_slow_gets_everything_though_it_is_read_without_blocking(page: Page) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    output = TaggedOutput(writing, writing)
    pipes = RankPipes(output)
    rank = pipes.pipe(0, "stdout")
    pipes.start()
    sent = b"".join(b"%06d\n" % number for number in range(9000))  # with its tags, more than a pipe holds
    os.write(rank, sent)
    got = b""
    with os.fdopen(reading, "rb") as end:
        while got.count(b"\n") < 9000:
            got += end.read1()
        pipes.close()
    os.close(writing)
    assert got.replace(b"[1,0]<stdout>:", b"") == sent


# --- pipes of ranks --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_new_fds")
def test_what_was_written_before_the_end_is_shown_though_others_may_still_write(page: Page) -> None:
    pipes = RankPipes(page.output())
    writing = pipes.pipe(3, "stdout")
    pipes.pipe(3, "stderr")
    pipes.start()
    left_behind = os.dup(writing)
    os.write(writing, b"one\ntwo")
    pipes.close()
    pipes.close()
    assert page.out == b"[1,3]<stdout>:one\n[1,3]<stdout>:two\n"
    with pytest.raises(BrokenPipeError):
        os.write(left_behind, b"too late")
    os.close(left_behind)


@pytest.mark.usefixtures("no_new_fds")
def test_pipes_that_were_never_read_are_closed_too(page: Page) -> None:
    pipes = RankPipes(page.output())
    os.write(pipes.pipe(0, "stdout"), b"said\n")
    pipes.close()
    pipes.close()
    assert page.out == b"[1,0]<stdout>:said\n"


@pytest.mark.usefixtures("no_new_fds")
def test_everything_that_fills_the_pipes_is_shown(page: Page) -> None:
    pipes = RankPipes(page.output())
    writing = [pipes.pipe(rank, "stdout") for rank in range(50)]
    for end in writing:
        os.write(end, b"x" * 65_536)
    pipes.start()
    pipes.close()
    assert sorted(page.out.splitlines()) == sorted(b"[1,%d]<stdout>:" % rank + b"x" * 65_536 for rank in range(50))


@pytest.mark.usefixtures("no_new_fds")
def test_when_nobody_reads_our_output_the_end_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    pipes = RankPipes(TaggedOutput(writing, writing))
    rank = pipes.pipe(0, "stdout")
    pipes.start()
    os.write(rank, b"x\n" * 10_000)  # with its tags, more than a pipe holds
    pipes.close(seconds=0.01)
    while os.read(reading, 1 << 20).count(b"\n") and pipes._thread.is_alive():
        pipes.close(seconds=0.01)
    os.close(reading)
    pipes.close()
    os.close(writing)
