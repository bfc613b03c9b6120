"""FILE:name: what can be named, and what is said about everything else."""

from pathlib import Path

import pytest

from headrace.cli.subject import find
from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from tests.cli.subjects import TEXT
from tests.cli.subjects import forgotten as forgotten
from tests.conftest import RunScript


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_data.py"
    path.write_text(TEXT)
    return path


def test_a_pipe_a_loader_a_function_and_something_inside_a_class_can_be_named(file: Path) -> None:
    assert isinstance(find(f"{file}:pipe").target, Pipe)
    assert isinstance(find(f"{file}:loader").target, Loader)
    assert isinstance(find(f"{file}:make").target, Pipe)
    assert find(f"{file}:config.train").target is find(f"{file}:pipe").target


def test_a_module_can_be_named_in_place_of_its_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert isinstance(find("my_data:pipe").target, Pipe)


def test_a_file_whose_name_is_taken_by_a_module_is_loaded_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text(TEXT)
    subject = find(f"{path}:pipe")
    with subject.loader(workers=1) as loader:
        assert len(list(loader)) == 13


@pytest.mark.parametrize("name", ["my-data 2.py", "data.v2.py"])
def test_a_file_whose_name_is_no_name_is_loaded_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXT)
    assert isinstance(find(f"{path}:pipe").target, Pipe)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "write FILE:name"),
        ("pip", "did you mean 'pipe'?"),
        ("zzz", "there are bad, bad_stream, clocked, empty, loader, pipe, singles"),
        ("config.tran", "did you mean 'train'?"),
        ("number", "is of type int; name a Pipe"),
        ("Loader", "is the class Loader"),
        ("needs", "must take no arguments"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_write(file: Path, name: str, words: str) -> None:
    with pytest.raises(BadOption, match=words.replace("?", r"\?")):
        find(f"{file}:{name}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pipe", "write FILE:name"),
        ("no_such.py:pipe", "no such file"),
        ("no_such_module:pipe", "no such module"),
        ("no.such.module:pipe", "no such module"),
        ("what is this:pipe", "neither a file nor"),
    ],
)
def test_a_file_that_is_not_there_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        find(text)


def test_an_error_inside_the_function_is_the_users_own(file: Path) -> None:
    with pytest.raises(TypeError, match="inside"):
        find(f"{file}:broken")


def test_a_loader_is_made_again_with_its_options_and_some_changed(file: Path) -> None:
    subject = find(f"{file}:loader")
    same, other = subject.loader(), subject.loader(workers=0)
    assert (same.seed, same.policy) == (7, subject.target.policy)
    assert (other.seed, other.policy.kind, other.policy.prefetch) == (7, "inline", 3)
    threads = subject.loader(workers=3, kind="thread")
    assert (threads.policy.kind, threads.policy.workers) == ("thread", 3)


def test_a_dataloader2_is_known_by_its_pipe(tmp_path: Path) -> None:
    path = tmp_path / "second.py"
    path.write_text(
        "from headrace.doors.dataloader2.loader import DataLoader2\n"
        "from headrace.doors.dataloader2.services import MultiProcessingReadingService\n"
        "from headrace import Pipe\n"
        "service = MultiProcessingReadingService(num_workers=2)\n"
        "loader = DataLoader2(Pipe.of(range(10)).batch(2), reading_service=service)\n"
    )
    subject = find(f"{path}:loader")
    with subject.loader() as made:
        assert made.policy.workers == 2
        assert [list(batch) for batch in made] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_an_error_in_the_file_shows_the_users_own_lines(tmp_path: Path, run_script: RunScript) -> None:
    (tmp_path / "fails.py").write_text("x = 1\ny = x / 0\n")
    done = run_script("from headrace.cli import main\nmain(['explain', 'fails.py:pipe'])\n")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "y = x / 0" in done.stderr
