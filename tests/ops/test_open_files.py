import io
import os
import pickle
from pathlib import Path

import pytest

from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.sources.stream import StreamWrapper
from tests.ops.file_laws import check_file_op, everything


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "c.csv"):
        (tmp_path / name).write_text(f"in {name}\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_text("deep\n")
    return tmp_path


def test_files_are_opened_as_text_and_closed_by_whoever_reads_them(folder: Path) -> None:
    got = check_file_op(Pipe.files(str(folder / "*.txt")).open_files())
    assert got == [(str(folder / "a.txt"), "in a.txt\n"), (str(folder / "b.txt"), "in b.txt\n")]


@pytest.mark.parametrize("mode", ["b", "rb"])
def test_binary_modes_give_bytes(folder: Path, mode: str) -> None:
    assert everything(Pipe.of([str(folder / "a.txt")]).open_files(mode)) == [(str(folder / "a.txt"), b"in a.txt\n")]


def test_an_encoding_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("grün", encoding="latin-1")
    assert everything(Pipe.of([path]).open_files("r", encoding="latin-1")) == [(str(path), "grün")]


@pytest.mark.parametrize("mode", ["w", "rw", "x", ""])
def test_a_mode_that_does_not_read_is_refused_at_once(mode: str) -> None:
    with pytest.raises(ValueError, match=f"Invalid mode {mode}"):
        Pipe.of(["a"]).open_files(mode)


def test_binary_mode_takes_no_encoding() -> None:
    with pytest.raises(ValueError, match="binary mode doesn't take an encoding argument"):
        Pipe.of(["a"]).open_files("rb", encoding="utf-8")


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="Expected string type for pathname, but got <class 'int'>"):
        list(Pipe.of([1]).open_files())


def test_a_missing_file_is_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(Pipe.of([str(tmp_path / "no")]).open_files())


def test_the_length_is_what_the_user_says_or_what_the_source_knows() -> None:
    assert len(Pipe.of(["a", "b"]).open_files()) == 2
    assert len(Pipe.of(lambda: iter(["a"])).open_files(length=7)) == 7


def test_an_open_stream_travels_to_another_process_at_the_place_where_it_stands(folder: Path) -> None:
    ((_, stream),) = Pipe.of([str(folder / "a.txt")]).open_files("rb")
    assert stream.read(3) == b"in "
    copy = pickle.loads(pickle.dumps(stream))
    with stream, copy:
        assert (copy.read(), stream.read()) == (b"a.txt\n", b"a.txt\n")


def test_streams_arrive_open_from_worker_processes(folder: Path) -> None:
    with Loader(Pipe.files(folder).open_files(), workers=2) as loader:
        assert everything(loader) == everything(Pipe.files(folder).open_files())


def test_a_list_of_files_is_random_access_and_can_be_shuffled(folder: Path) -> None:
    pipe = Pipe.files(folder).shuffle().open_files().readlines(return_path=False)
    assert sorted(pipe) == sorted(Pipe.lines(folder))


def test_folders_patterns_and_ranges_become_a_fixed_list(folder: Path) -> None:
    for number in range(3):
        (folder / f"s-{number:02d}.tar").touch()
    assert [os.path.basename(p) for p in Pipe.files(folder)] == [
        "a.txt", "b.txt", "c.csv", "s-00.tar", "s-01.tar", "s-02.tar", "d.txt",
    ]  # fmt: skip
    assert list(Pipe.files(f"{folder}/s-{{00..01}}.tar")) == [str(folder / "s-00.tar"), str(folder / "s-01.tar")]
    assert list(Pipe.files(f"{folder}/**/d.txt")) == [str(folder / "deep" / "d.txt")]
    assert list(Pipe.files(f"file://{folder}/a.txt")) == [str(folder / "a.txt")]


def test_a_pattern_or_name_without_a_file_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern '.*\*.csv'$"):
        Pipe.files(str(tmp_path / "*.csv"))
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder 'absent.csv' in '.*'$"):
        Pipe.files("absent.csv")


def test_a_moved_data_set_has_the_same_fingerprint(tmp_path: Path) -> None:
    for folder in ("one", "two/three"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("x.txt", "y.txt"):
            (tmp_path / folder / name).touch()
    one, two = (Pipe.files(tmp_path / folder) for folder in ("one", "two/three"))
    assert one.fingerprint() == two.fingerprint()
    (tmp_path / "one" / "z.txt").touch()
    assert Pipe.files(tmp_path / "one").fingerprint() != two.fingerprint()


def test_a_wrapped_stream_behaves_like_its_file() -> None:
    with StreamWrapper(io.BytesIO(b"a\nb\n")) as stream:
        assert (list(stream), stream.tell(), stream.seekable()) == ([b"a\n", b"b\n"], 4, True)
        assert "getvalue" in dir(stream)
