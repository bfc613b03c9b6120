import csv
from pathlib import Path
from typing import Any

import pytest

from headrace.ops.text.parse_csv import ParseCsv
from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op

ROWS = [["id", "name"], ["1", "one, or\r\nso"], [], ["2", "zwölf"]]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for number in range(3):
        with open(tmp_path / f"{number}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([*ROWS, [str(number), "last"]])
    return [str(tmp_path / f"{number}.csv") for number in range(3)]


def test_rows_come_as_lists_with_the_empty_ones(files: list[str]) -> None:
    got = check_file_op(Pipe.csv(files))
    assert got == [row for number in range(3) for row in [*ROWS, [str(number), "last"]]]


def test_a_text_stream_a_binary_stream_and_a_path_give_the_same(files: list[str]) -> None:
    binary = list(Pipe.of(files).open_files("rb").parse_csv(skip_lines=3))
    assert binary == list(Pipe.of(files).open_files("r").parse_csv(skip_lines=3))
    assert binary == list(Pipe.of(files).parse_csv(skip_lines=3))
    assert binary[:2] == [[], ["2", "zwölf"]]


def test_rows_as_tuples_and_with_their_path(files: list[str]) -> None:
    pipe = Pipe.of(files[:1]).open_files("rb").parse_csv(as_tuple=True, return_path=True)
    assert next(iter(pipe)) == (files[0], ("id", "name"))
    check_file_op(pipe)


def test_rows_as_dicts_have_each_files_own_header(files: list[str]) -> None:
    pipe = Pipe.csv(files, header=True)
    assert check_file_op(pipe)[1] == {"id": "2", "name": "zwölf"}
    with_path = Pipe.of(files).open_files("rb").parse_csv_as_dict(return_path=True)
    assert next(iter(with_path)) == (files[0], {"id": "1", "name": "one, or\r\nso"})


def test_format_parameters_are_handed_on(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1;'a;b'\n")
    assert list(Pipe.csv(tmp_path / "x", delimiter=";", quotechar="'")) == [["1", "a;b"]]


def test_an_unknown_format_parameter_is_refused_before_any_file_is_read() -> None:
    with pytest.raises(TypeError):
        Pipe.of(["no such file"]).parse_csv(colour="red")


@pytest.mark.parametrize("verb", ["parse_csv", "parse_csv_as_dict", "readlines"])
def test_skip_lines_must_not_be_negative(verb: str) -> None:
    with pytest.raises(ValueError, match="'skip_lines' is required to be a positive integer"):
        getattr(Pipe.of(["x"]), verb)(skip_lines=-1)


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_file_in_another_encoding_is_an_error_with_its_file_and_line(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes(b"a,b\n1,2\n3,gr\xfcn\n")
    with pytest.raises(UnicodeDecodeError, match=f"in {path}, line 3"):
        list(Pipe.of([path]).open_files(mode).parse_csv())
    with pytest.raises(UnicodeDecodeError, match=f"in {path}, line 3"):
        list(Pipe.of([path]).open_files(mode).parse_csv(skip_lines=1))


def test_decode_errors_may_be_ignored_on_request(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"gr\xfcn\n")
    assert list(Pipe.csv(tmp_path / "x", errors="ignore")) == [["grn"]]
    assert list(Pipe.csv(tmp_path / "x", encoding="latin-1")) == [["grün"]]


def test_wide_encodings_are_decoded_before_lines_are_cut(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("a,b\nschön,ਊ\n".encode("utf-16"))
    pipe = Pipe.csv(tmp_path / "x", encoding="utf-16")
    assert check_file_op(pipe, workers=False) == [["a", "b"], ["schön", "ਊ"]]


def test_a_damaged_row_is_an_error_with_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'a,b\n"c"d,e\n')
    with pytest.raises(csv.Error, match=f"in {tmp_path}/x, line 2"):
        list(Pipe.of([str(tmp_path / "x")]).open_files("rb").parse_csv(strict=True))


def test_a_sample_that_is_no_file_is_named() -> None:
    with pytest.raises(TypeError, match="expected a path or a"):
        list(Pipe.of([3]).parse_csv())


def test_stopping_in_the_middle_closes_the_file(files: list[str]) -> None:
    opened: list[Any] = list(Pipe.of(files).open_files("rb"))
    rows = ParseCsv().spread(opened[0])
    next(rows)
    assert [stream.closed for _, stream in opened] == [False, False, False]
    del rows
    assert [stream.closed for _, stream in opened] == [True, False, False]
    assert len(list(Pipe.of(opened[1:]).parse_csv())) == 10
    assert all(stream.closed for _, stream in opened)


def test_a_length_is_not_known(files: list[str]) -> None:
    with pytest.raises(TypeError):
        len(Pipe.csv(files))
