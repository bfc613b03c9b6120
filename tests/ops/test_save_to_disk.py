import io
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op


def test_content_is_written_and_the_path_handed_on(tmp_path: Path) -> None:
    samples = [(f"{tmp_path}/new/{i}.bin", bytes([i]) * i) for i in range(4)]
    pipe = Pipe.of(samples).save_to_disk("wb")
    assert check_file_op(pipe) == [path for path, _ in samples]
    assert [Path(path).read_bytes() for path, _ in samples] == [data for _, data in samples]
    assert sorted(os.listdir(tmp_path / "new")) == [f"{i}.bin" for i in range(4)]


@pytest.mark.parametrize(("mode", "data"), [("w", "ü"), ("t", "ü"), ("b", b"x"), ("wb", io.BytesIO(b"stream"))])
def test_modes_and_kinds_of_content(tmp_path: Path, mode: str, data: Any) -> None:
    (path,) = Pipe.of([(tmp_path / "x", data)]).save_to_disk(mode)
    expected = {"w": "ü".encode(), "t": "ü".encode(), "b": b"x", "wb": b"stream"}[mode]
    assert Path(path).read_bytes() == expected
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o600 == 0o600


def test_a_function_names_the_file(tmp_path: Path) -> None:
    pipe = Pipe.of([("x", "1")]).save_to_disk(filepath_fn=lambda name: str(tmp_path / f"{name}.txt"))
    assert list(pipe) == [str(tmp_path / "x.txt")]


def test_a_bare_name_is_a_file_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(Pipe.of([("x.txt", "1")]).save_to_disk()) == ["x.txt"]
    assert (tmp_path / "x.txt").read_text() == "1"


@pytest.mark.parametrize("mode", ["a", "r", "w+", "xb"])
def test_only_whole_files_are_written(mode: str) -> None:
    with pytest.raises(ValueError, match="Invalid mode"):
        Pipe.of([("x", "1")]).save_to_disk(mode)


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(TypeError):
        list(Pipe.of([(str(tmp_path / "x"), b"bytes into text")]).save_to_disk("w"))
    assert (os.listdir(tmp_path), (tmp_path / "x").read_text()) == (["x"], "old")


def test_with_a_folder_nothing_is_written_outside_of_it(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    (inside / "sub").mkdir(parents=True)
    (inside / "way_out").symlink_to(tmp_path)
    pipe = Pipe.of([("sub/a", "1"), ("/abs/b", "2")]).save_to_disk(folder=str(inside))
    assert list(pipe) == [str(inside / "sub/a"), str(inside / "abs/b")]
    for name in ("../a", "sub/../../a", "way_out/a"):
        with pytest.raises(ValueError, match="outside of the folder"):
            list(Pipe.of([(name, "1")]).save_to_disk(folder=str(inside)))
    assert sorted(os.listdir(tmp_path)) == ["in"]
