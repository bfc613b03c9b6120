"""A file is whole or not there, and who is killed while writing leaves nothing behind."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.sources import atomic as room
from headrace.sources.atomic import atomic_write
from tests.conftest import RunScript

WAYS = ["without a name", "beside its place", "cannot be linked"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "beside its place":
        monkeypatch.setattr(room, "_NAMELESS", 0)
    if request.param == "cannot be linked":

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise OSError(errno.EXDEV, "no links here")

        monkeypatch.setattr(room.os, "link", refuse)
    return str(request.param)


def test_it_appears_when_it_is_complete_and_replaces_what_was_there(way: str, tmp_path: Path, no_new_fds: Any) -> None:
    path = tmp_path / "new" / "x"
    for text in ("first", "an older one is replaced"):
        with atomic_write(str(path), "w") as file:
            file.write(text)
            file.flush()
            assert not path.exists() or path.read_text() == "first"
        assert (path.read_text(), os.listdir(path.parent)) == (text, ["x"])
    assert path.stat().st_mode & 0o600 == 0o600


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_a_name_may_be_as_long_as_the_file_system_allows(way: str, tmp_path: Path, name: str) -> None:
    for text in ("first", "an older one is replaced"):
        with atomic_write(str(tmp_path / name), "w") as file:
            file.write(text)
    assert (tmp_path / name).read_text() == text


def test_an_error_leaves_the_old_file_and_nothing_else(way: str, tmp_path: Path, no_new_fds: Any) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(TypeError), atomic_write(str(tmp_path / "x"), "wb") as file:
        file.writelines([b"new", "not bytes"])  # type: ignore[list-item]
    assert (os.listdir(tmp_path), (tmp_path / "x").read_text()) == (["x"], "old")


KILLED = """
    import os, signal, sys
    from headrace import Pipe
    from headrace.sources import atomic

    class Deadly:
        parts = [b"some", b"more"]
        def read(self, size):
            if self.parts:
                return self.parts.pop()
            os.kill(os.getpid(), signal.SIGKILL)

    if sys.argv[1] == "beside":
        atomic._NAMELESS = 0
    if sys.argv[2] == "save_to_disk":
        list(Pipe.of([("out/x", Deadly())]).save_to_disk("wb"))
    else:
        list(Pipe.of(["x"]).on_disk_cache(lambda x: "out/x").map(lambda x: (x, Deadly()))
             .end_caching(same_filepath_fn=True))
"""


@pytest.mark.parametrize("verb", ["save_to_disk", "on_disk_cache"])
def test_a_killed_writer_leaves_no_part(verb: str, tmp_path: Path, run_script: RunScript) -> None:
    assert run_script(KILLED, "nameless", verb).returncode == -9
    assert [name for name in os.listdir(tmp_path / "out") if not name.endswith(".lock")] == []


def test_what_a_killed_writer_left_is_removed_at_the_next_start(tmp_path: Path, run_script: RunScript) -> None:
    assert run_script(KILLED, "beside", "save_to_disk").returncode == -9
    (left,) = os.listdir(tmp_path / "out")
    (tmp_path / "out" / ".mine.part").write_text("a file of the user's")
    with atomic_write(str(tmp_path / "out" / "y"), "w") as file:
        file.write("y")
    assert left not in os.listdir(tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == [".mine.part", "y"]


def test_a_part_that_is_being_written_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_NAMELESS", 0)
    with atomic_write(str(tmp_path / "x"), "w") as file:
        file.write("x")
        room._swept.clear()
        with atomic_write(str(tmp_path / "y"), "w") as other:
            other.write("y")
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_a_part_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / f".x.{'0' * 12}.part"
    theirs.touch()
    opens = os.open

    def refused(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == str(theirs):
            raise PermissionError(errno.EACCES, "another user's")
        return opens(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refused)
    with atomic_write(str(tmp_path / "y"), "w") as file:
        file.write("y")
    assert sorted(os.listdir(tmp_path)) == [theirs.name, "y"]
