import os
from pathlib import Path

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.csv", "in/z.txt", "in/y.csv", "in/deep/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    return tmp_path


def names(pipe: Pipe[str], folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in pipe]


def test_only_the_folder_itself_is_listed_in_order_unless_recursive(folder: Path) -> None:
    assert names(Pipe.of([str(folder)]).list_files(), folder) == ["a.csv", "b.txt"]
    deep = Pipe.of([str(folder)]).list_files(recursive=True)
    assert names(deep, folder) == ["a.csv", "b.txt", "in/y.csv", "in/z.txt", "in/deep/x.txt"]
    check_file_op(deep)


@pytest.mark.parametrize(("masks", "count"), [("", 5), ("*.txt", 3), (["*.csv", "x*"], 3), ("*.tar", 0)])
def test_masks_choose_by_the_name(folder: Path, masks: str | list[str], count: int) -> None:
    assert len(list(Pipe.of([str(folder)]).list_files(masks, recursive=True))) == count


def test_roots_may_come_from_a_pipe(folder: Path) -> None:
    pipe = Pipe.of([str(folder / "in"), str(folder)]).list_files("*.txt")
    assert names(pipe, folder) == ["in/z.txt", "b.txt"]
    check_file_op(pipe)


def test_a_root_that_is_a_file_is_its_own_only_file(folder: Path) -> None:
    assert list(Pipe.of([str(folder / "b.txt")]).list_files("*.txt")) == [str(folder / "b.txt")]
    assert list(Pipe.of([str(folder / "b.txt")]).list_files("*.csv")) == []


def test_paths_are_absolute_when_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert list(Pipe.of(["."]).list_files()) == ["./a.csv", "./b.txt"]
    assert list(Pipe.of(["."]).list_files(abspath=True)) == [str(folder / "a.csv"), str(folder / "b.txt")]


def test_a_missing_root_warns_and_raises(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="No such file"), pytest.raises(FileNotFoundError):
        list(Pipe.of([str(tmp_path / "no")]).list_files())


def test_the_length_is_known_only_when_given(folder: Path) -> None:
    assert len(Pipe.of([str(folder)]).list_files(length=2)) == 2
    with pytest.raises(TypeError):
        len(Pipe.of([str(folder)]).list_files())


def test_a_listing_sees_what_is_there_when_an_epoch_starts(folder: Path) -> None:
    pipe = Pipe.of([str(folder)]).list_files()
    list(pipe)
    (folder / "aa.txt").touch()
    assert names(pipe, folder) == ["a.csv", "aa.txt", "b.txt"]
