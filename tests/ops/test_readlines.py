import csv
import io
from pathlib import Path

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\n\nfour")
    (tmp_path / "b.txt").write_bytes("fünf\n".encode())
    (tmp_path / "c.txt").touch()
    return [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.txt")]


def test_lines_come_with_their_path_and_without_their_end(files: list[str]) -> None:
    got = check_file_op(Pipe.of(files).open_files("rb").readlines())
    assert got == [(files[0], line) for line in (b"one", b"two", b"", b"four")] + [(files[1], "fünf".encode())]


def test_bytes_become_text_when_asked_and_text_stays_text(files: list[str]) -> None:
    assert list(Pipe.lines(files)) == ["one", "two", "", "four", "fünf"]
    check_file_op(Pipe.lines(files))
    assert list(Pipe.of(files).open_files().readlines(return_path=False)) == ["one", "two", "", "four", "fünf"]


def test_line_ends_may_be_kept_and_first_lines_skipped(files: list[str]) -> None:
    pipe = Pipe.of(files).open_files("rb").readlines(strip_newline=False, skip_lines=1, return_path=False)
    assert list(pipe) == [b"two\n", b"\n", b"four"]


@pytest.mark.parametrize("skip", range(6))
@pytest.mark.parametrize("text", ["a\rb\rc", "a\r\rb\r\nc\nd\r", "\r\n\r1\n\n2", "a\n\rb"])
def test_skipped_lines_are_counted_as_lines_are_read(tmp_path: Path, text: str, skip: int) -> None:
    (tmp_path / "x").write_bytes(text.encode())
    expected = io.StringIO(text, newline="").readlines()[skip:]
    got = Pipe.of([str(tmp_path / "x")]).open_files("rb")
    assert list(got.readlines(skip_lines=skip, decode=True, strip_newline=False, return_path=False)) == expected
    assert list(got.parse_csv(skip_lines=skip)) == list(csv.reader(expected))
    assert (
        list(got.readlines(skip_lines=skip, strip_newline=False, return_path=False))
        == (io.BytesIO(text.encode()).readlines()[skip:])
    )


def test_a_file_in_another_encoding_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"ok\nok\n\xff\n")
    with pytest.raises(UnicodeDecodeError, match="line 3"):
        list(Pipe.lines(tmp_path / "x"))
    assert list(Pipe.lines(tmp_path / "x", errors="replace")) == ["ok", "ok", "�"]


def test_paragraphs_end_at_an_empty_line_and_at_another_file() -> None:
    lines = [("a", "1"), ("a", "2"), ("a", ""), ("a", ""), ("a", "3"), ("b", "4"), ("b", "5"), ("c", ""), ("c", "6")]
    pipe = Pipe.of(lines).lines_to_paragraphs()
    assert check_file_op(pipe) == [("a", "1\n2"), ("a", "3"), ("b", "4\n5"), ("c", "6")]


def test_a_joiner_of_the_users_joins() -> None:
    assert list(Pipe.of([("a", "1"), ("a", "2")]).lines_to_paragraphs("+".join)) == [("a", "1+2")]


def test_paragraphs_of_nothing_are_nothing() -> None:
    assert list(Pipe.of([]).lines_to_paragraphs()) == []
    assert list(Pipe.of([("a", ""), ("a", "")]).lines_to_paragraphs()) == []
