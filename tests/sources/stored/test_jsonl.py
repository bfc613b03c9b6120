"""JSON lines by position and as a stream are the same documents: those that a plain loop over a text file finds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.sources.stored import jsonl
from tests.depth import depth

MARK = "\ufeff"
DOCUMENTS = [
    "1",
    '{"a": [1, 2]}',
    '"x"',
    " 7",
    "null\t",
    '"a\x85b\u2028c\u2029d"',
    '"\\r\\n\\u0085"',
    '{"a":"\\ud800"}',
]
BLANK = ["", " ", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\u3000 "]
BROKEN = ["{", "1 2", "\0", MARK + "1", '"a\x1fb"', "9" * 5000, "[" * 3000, "x\x85", "1\u2028"]
ENDS = ["\n", "\r\n", "\r", "\r\r\n", "\n\n", "\n\r"]
LINES = st.lists(st.tuples(st.sampled_from(DOCUMENTS + BLANK), st.sampled_from(ENDS)), max_size=30)
ANY_LINES = st.lists(st.tuples(st.sampled_from(DOCUMENTS + BLANK + BROKEN), st.sampled_from(ENDS)), max_size=30)


def both_ways(path: Path, piece: int, **options: Any) -> list[list[Any]]:
    """What `Pipe.stored`, which scans pieces of so many bytes, and `Pipe.jsonl` read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "PIECE", piece)
        return [list(Loader(make(path), **options)) for make in (Pipe.stored, Pipe.jsonl)]


@given(LINES, st.booleans(), st.booleans(), st.integers(1, 40))
def test_documents_are_those_that_a_plain_loop_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], last: bool, mark: bool, piece: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    text = "".join(line + end for line, end in rows)
    path.write_bytes(((MARK if mark else "") + (text if last else text.rstrip("\r\n"))).encode())
    with path.open(encoding="utf-8-sig") as file:
        expected = [json.loads(line) for line in file if line.strip()]
    assert both_ways(path, piece) == [expected, expected]


@given(ANY_LINES, st.sets(st.integers(0, 200), max_size=depth(2, 5)), st.booleans(), st.integers(1, 40))
def test_what_is_broken_is_left_out_alike(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], bad: set[int], mark: bool, piece: int
) -> None:
    """Broken are lines that are no documents, and those with bytes that are no UTF-8."""
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    content = bytearray(((MARK if mark else "") + "".join(line + end for line, end in rows)).encode())
    for place in bad:
        content[place:place] = b"\xed\xa0\x80" if place % 2 else b"\xff"
    path.write_bytes(content)
    expected = []
    text = bytes(content).removeprefix(MARK.encode()).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in text.split(b"\n"):
        try:
            if (decoded := line.decode()).strip():
                expected.append(json.loads(decoded))
        except (ValueError, RecursionError):
            continue
    assert both_ways(path, piece, on_error="skip") == [expected, expected]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", MARK])
def test_documents_are_those_that_pandas_and_arrow_read(tmp_path: Path, end: str, mark: str) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.json")
    path = tmp_path / "a.jsonl"
    texts = ["x", "a\x85b", "c\u2028\u2029d", "", "\r\n\u0085"]
    lines = [json.dumps({"a": text}, ensure_ascii=number % 2 == 0) for number, text in enumerate(texts)]
    path.write_bytes((mark + end.join([*lines[:2], "", " ", *lines[2:]])).encode())
    expected = [{"a": text} for text in texts]
    assert both_ways(path, 16) == [expected, expected]
    assert arrow.read_json(path).to_pylist() == expected
    with path.open(encoding="utf-8-sig") as file:
        assert pandas.read_json(file, lines=True, dtype=False).to_dict("records") == expected
