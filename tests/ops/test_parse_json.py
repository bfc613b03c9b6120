import io
import json
from pathlib import Path

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op, everything


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps({"number": number, "ü": [None, 1.5]}))
    return [str(tmp_path / f"{number}.json") for number in range(3)]


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_each_file_is_one_document(files: list[str], mode: str) -> None:
    got = check_file_op(Pipe.of(files).open_files(mode).parse_json_files(), workers=mode == "r")
    assert got == [(path, {"number": i, "ü": [None, 1.5]}) for i, path in enumerate(files)]
    assert len(Pipe.of(files).open_files().parse_json_files()) == 3


def test_keywords_go_to_the_parser() -> None:
    pipe = Pipe.of([("x", io.StringIO("1.5"))]).parse_json_files(parse_float=str)
    assert list(pipe) == [("x", "1.5")]


def test_a_damaged_document_is_an_error_that_names_the_file_and_closes_it() -> None:
    stream = io.StringIO("[1,")
    with pytest.raises(json.JSONDecodeError, match=r"x\.json: Expecting value"):
        list(Pipe.of([("x.json", stream)]).parse_json_files())
    assert stream.closed


def test_each_line_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n[2]\n')
    (tmp_path / "b.jsonl").write_text('"ü"')
    pipe = Pipe.jsonl(tmp_path)
    assert check_file_op(pipe) == [{"a": 1}, [2], "ü"]
    with_path = Pipe.of([str(tmp_path / "b.jsonl")]).parse_jsonl(return_path=True)
    assert everything(with_path) == [(str(tmp_path / "b.jsonl"), "ü")]


def test_a_damaged_line_is_an_error_with_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n{\n")
    with pytest.raises(json.JSONDecodeError, match=r"a\.jsonl, line 3: "):
        list(Pipe.jsonl(tmp_path / "a.jsonl"))
