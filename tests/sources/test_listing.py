"""Listing: a file that several patterns mean is read as often as it is meant, and the log says so."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe

READERS: dict[str, Callable[[Any], Pipe[Any]]] = {"stored": Pipe.stored, "jsonl": Pipe.jsonl}


def twice(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "more than once" in record.getMessage()]


@pytest.fixture
def folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    caplog.set_level(logging.WARNING, "headrace")
    (tmp_path / "d").mkdir()
    for number in range(1, 4):
        (tmp_path / "d" / f"a{number}.jsonl").write_text(f"{number}\n")
    return tmp_path / "d"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("given", "rows", "said"),
    [
        (["a1.jsonl", "a*.jsonl"], [1, 1, 2, 3], "a1.jsonl is meant more than once"),
        (["a*.jsonl", "a?.jsonl"], [1, 2, 3, 1, 2, 3], "a1.jsonl and 2 other files are meant more than once"),
        (["", "./a2.jsonl"], [1, 2, 3, 2], "a2.jsonl is meant more than once"),
        (["a{1..2}.jsonl", "../d/a{2..3}.jsonl"], [1, 2, 2, 3], "a2.jsonl is meant more than once"),
    ],
)
def test_patterns_that_overlap_are_told_once(
    folder: Path, caplog: pytest.LogCaptureFixture, reader: str, given: list[str], rows: list[int], said: str
) -> None:
    pipe = READERS[reader]([f"{folder}/{name}" for name in given])
    (line,) = twice(caplog)
    assert said in line
    for _ in range(2):
        with Loader(pipe, workers=2, kind="thread") as loader:
            assert list(loader) == rows
    assert len(twice(caplog)) == 1


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_named_twice_is_meant_so(folder: Path, caplog: pytest.LogCaptureFixture, reader: str) -> None:
    one, others = folder / "a1.jsonl", folder / "a[23].jsonl"
    assert list(Loader(READERS[reader]([one, one, others]))) == [1, 1, 2, 3]
    assert not twice(caplog)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with a file, a link to nothing, a link to another folder, and one that leads back."""
    for name in ("d/a.txt", "other/deep/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "d" / "lost.txt").symlink_to("nowhere")
    (tmp_path / "d" / "linked").symlink_to("../other")
    (tmp_path / "d" / "back").symlink_to(".")
    (tmp_path / "other" / "up").symlink_to("../d")
    return tmp_path / "d"


def test_links_to_folders_that_are_not_followed_are_told_once(linked: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert list(Pipe.files(linked)) == [f"{linked}/a.txt", f"{linked}/lost.txt"]
    assert list(Pipe.of([str(linked)]).list_files(recursive=True)) == [f"{linked}/a.txt", f"{linked}/lost.txt"]
    assert sorted(record.getMessage().partition(" is a link")[0] for record in caplog.records) == [
        f"{linked}/back", f"{linked}/linked"
    ]  # fmt: skip


@pytest.mark.parametrize("begin", ["", "back/"])
def test_a_pattern_goes_through_links_but_not_in_circles(linked: Path, begin: str) -> None:
    found = [f"{linked}/{begin}{name}" for name in ("a.txt", "linked/deep/b.txt", "lost.txt")]
    assert list(Pipe.files(f"{linked}/{begin}**/*.txt")) == found


def test_a_link_to_nothing_that_fits_a_pattern_is_an_error_not_left_out(linked: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"lost\.txt"):
        list(Pipe.lines(f"{linked}/*.txt"))
