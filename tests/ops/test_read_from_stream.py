import io
from pathlib import Path

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op


def test_content_comes_whole_or_in_pieces_and_the_stream_is_closed(tmp_path: Path) -> None:
    for name, text in (("a", "abcde"), ("b", ""), ("c", "xyz")):
        (tmp_path / name).write_text(text)
    a, b, c = (str(tmp_path / name) for name in "abc")
    opened = Pipe.of([a, b, c]).open_files()
    assert check_file_op(opened.read_from_stream()) == [(a, "abcde"), (c, "xyz")]
    assert check_file_op(opened.read_from_stream(2)) == [(a, "ab"), (a, "cd"), (a, "e"), (c, "xy"), (c, "z")]


def test_the_stream_is_closed_at_its_end() -> None:
    stream = io.BytesIO(b"abc")
    assert list(Pipe.of([("x", stream)]).read_from_stream(2)) == [("x", b"ab"), ("x", b"c")]
    assert stream.closed


def test_a_piece_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk"):
        Pipe.of([("x", io.BytesIO())]).read_from_stream(0)
