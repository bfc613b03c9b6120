"""Whole tagged lines of many streams, progress bars among them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.launch import output as launch_output
from headrace.launch.output import LineSplitter, TaggedOutput


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
        ([b"\r 1%", b"\r 2%", b"\r 3%\n", b"done\n"], [b" 3%", b"done"]),
        ([b" 1%\r", b" 2%\r", b" 3%\r"], [b" 3%"]),
        ([b"\r 1%\r 2%"], [b" 2%"]),
        ([b"\r", b"\r"], []),
        ([b"\xff\x00\xfe\n"], [b"\xff\x00\xfe"]),
    ],
)
def test_lines_are_whole_and_a_carriage_return_starts_the_line_again(pieces: list[bytes], lines: list[bytes]) -> None:
    assert shown(*pieces) == lines


@given(st.lists(st.binary(max_size=9).filter(lambda text: b"\r" not in text), max_size=20))
def test_how_text_is_cut_into_pieces_does_not_matter(pieces: list[bytes]) -> None:
    assert shown(*pieces) == shown(b"".join(pieces))
    assert b"\n".join(shown(*pieces)).rstrip(b"\n") == b"".join(pieces).rstrip(b"\n")


@pytest.mark.parametrize("form", [b"\r%d", b"%d\r"])
def test_a_long_bar_shows_its_present_state_once_a_second(form: bytes) -> None:
    clock = Clock()
    lines = LineSplitter(clock)
    out: list[bytes] = []
    for step in range(41):  # 4 seconds at 10 updates a second
        clock.now = step / 10
        out += lines.feed(form % step)
    out += lines.feed(b"\n")
    assert out[-1] == b"40"
    assert len(out) == 5
    assert [int(line) for line in out] == sorted(int(line) for line in out)


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_output, "LONGEST", 10)
    assert shown(b"x" * 25, b"\n") == [b"x" * 10, b"x" * 10, b"x" * 5]


def test_a_bar_that_never_ends_does_not_fill_the_memory() -> None:
    lines = LineSplitter(Clock())
    for step in range(1000):
        lines.feed(b"\r%d" % step)
    assert len(lines._rest) < 10


def output(only: int | None = None, mpi_tags: bool = False) -> tuple[TaggedOutput, io.BytesIO, io.BytesIO]:
    out, err = io.BytesIO(), io.BytesIO()
    return TaggedOutput(out, err, only, mpi_tags), out, err


def test_the_tags_of_mpirun_name_the_stream_too() -> None:
    page, out, err = output(mpi_tags=True)
    page.feed(2, "stdout", b"one\n")
    page.feed(2, "stderr", b"oh\n")
    assert (out.getvalue(), err.getvalue()) == (b"[1,2]<stdout>:one\n", b"[1,2]<stderr>:oh\n")


def test_each_line_carries_its_rank_and_goes_to_its_own_stream() -> None:
    page, out, err = output()
    page.feed(0, "stdout", b"one\ntw")
    page.feed(1, "stdout", b"other\n")
    page.feed(1, "stderr", b"oh\n")
    page.feed(0, "stdout", b"o\nend")
    page.finish(0, "stdout")
    assert out.getvalue() == b"[rank 0] one\n[rank 1] other\n[rank 0] two\n[rank 0] end\n"
    assert err.getvalue() == b"[rank 1] oh\n"


def test_a_hidden_rank_is_silent_until_it_is_revealed() -> None:
    page, out, err = output(only=0)
    page.feed(0, "stderr", b"seen\n")
    page.feed(1, "stdout", b"hidden\n")
    page.feed(1, "stderr", b"why\nI failed\n")
    page.feed(2, "stderr", b"hidden too\n")
    page.show_hidden(0)
    page.show_hidden(1)
    page.show_hidden(1)
    page.drop_hidden()
    page.show_hidden(2)
    assert out.getvalue() == b""
    assert err.getvalue() == b"[rank 0] seen\n[rank 1] why\n[rank 1] I failed\n"


def test_all_of_a_hidden_ranks_stderr_is_kept_however_long() -> None:
    page, _, err = output(only=0)
    for number in range(3000):
        page.feed(1, "stderr", b"%d" % number + b"." * 1000 + b"\n")
    page.show_hidden(1)
    lines = err.getvalue().splitlines()
    assert len(lines) == 3000
    assert lines[0].startswith(b"[rank 1] 0.")


def test_a_reader_that_has_gone_is_noticed_once() -> None:
    class Gone(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    calls: list[str] = []
    page = TaggedOutput(Gone(), Gone())
    page.on_broken = lambda: calls.append("broken")
    page.feed(0, "stdout", b"a\nb\n")
    page.feed(0, "stdout", b"c\n")
    assert calls == ["broken"]
    assert isinstance(page.broken, BrokenPipeError)


def test_a_rank_that_was_started_again_does_not_continue_the_last_line_of_the_old_one() -> None:
    out = io.BytesIO()
    page = TaggedOutput(out, io.BytesIO())
    page.feed(0, "stdout", b"old", pipe=5)
    page.feed(0, "stdout", b"new", pipe=6)
    page.finish(0, "stdout", pipe=5)
    page.finish(0, "stdout", pipe=6)
    assert out.getvalue() == b"[rank 0] old\n[rank 0] new\n"
