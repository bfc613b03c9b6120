import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import MissingExtra
from headrace.pipe.graph import Pipe
from headrace.sources import extra, retry
from headrace.sources.by_fsspec import open_fsspec
from headrace.sources.bytes import is_remote
from headrace.sources.open import open_path, open_stream
from tests.ops.file_laws import everything

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory() -> Any:
    files = fsspec.filesystem("memory")
    files.pipe("/d/a.txt", b"eins\nzwei\n")
    files.pipe("/d/b.txt", b"drei\n")
    yield files
    files.rm("/d", recursive=True)


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("a/b", False),
        ("/a", False),
        ("file:///a", False),
        ("s3://b/k", True),
        ("http://x/y", True),
        ("zip://a::b.zip", True),
        ("simplecache::s3://b/k", True),
        ("/a/12::30.txt", False),
        ("./a::b", False),
        ("a/http://x", False),
    ],
)
def test_what_is_remote(path: str, remote: bool) -> None:
    assert is_remote(path) is remote


def test_a_local_name_with_colons_is_not_cut_at_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("another file")
    (tmp_path / "a::b").write_text("this one")
    assert list(Pipe.of([str(tmp_path)]).list_files("*b").open_files().readlines(return_path=False)) == ["this one"]


def test_a_path_with_a_protocol_of_this_machine_is_opened_directly(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("ü", encoding="utf-8")
    with open_path(f"file://{tmp_path}/x", "r") as file:
        assert (file.read(), file.encoding) == ("ü", "utf-8")


def test_other_protocols_go_through_fsspec(memory: Any) -> None:
    with open_path("memory://d/a.txt", "r") as file:
        assert file.read() == "eins\nzwei\n"
    assert list(Pipe.of([("memory://d/new.txt", "neu")]).save_by_fsspec()) == ["memory://d/new.txt"]
    assert memory.cat("/d/new.txt") == b"neu"
    pipe = Pipe.of(["memory://d/a.txt", "memory://d/b.txt"]).open_files().readlines(return_path=False)
    assert list(pipe) == ["eins", "zwei", "drei"]
    assert list(Pipe.lines("memory://d/[ab].txt")) == ["eins", "zwei", "drei"]


def test_a_remote_stream_travels_by_being_opened_again(memory: Any) -> None:
    with open_stream("memory://d/a.txt") as stream:
        stream.read(5)
        with pickle.loads(pickle.dumps(stream)) as copy:
            assert copy.read() == stream.read() == b"zwei\n"


def test_a_failing_file_system_is_asked_again(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = type(memory).cat_file, []

    def breaking(self: Any, path: str, start: int | None = None, end: int | None = None, **rest: Any) -> bytes:
        asked.append(start)
        if len(asked) < 3:
            raise ConnectionResetError("gone")
        return bytes(real(self, path, start=start, end=end, **rest))

    monkeypatch.setattr(type(memory), "cat_file", breaking)
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    with open_fsspec("memory://d/b.txt") as file:
        assert file.read() == b"drei\n"
    assert asked == [0, 0, 0]


def test_a_file_that_is_unpacked_by_its_file_system_goes_on_at_the_byte_reached(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = []

    class Breaking:
        """Gives two bytes, then breaks."""

        def __init__(self, inner: Any) -> None:
            self.inner, self.left = inner, 2

        def seekable(self) -> bool:
            return False

        def read(self, size: int) -> bytes:
            if not self.left:
                raise ConnectionResetError("gone")
            self.left = 0 if len(opens) < 3 else size
            return bytes(self.inner.read(min(size, 2)))

        def close(self) -> None:
            self.inner.close()

    def opened(self: Any, *args: Any, **options: Any) -> Any:
        opens.append(options)
        return Breaking(real(self, *args, **options))

    memory.pipe("/d/b.gz", gzip.compress(b"drei\n"))
    real = type(memory).open
    monkeypatch.setattr(type(memory), "open", opened)
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    with open_fsspec("memory://d/b.gz", {"compression": "gzip"}) as file:
        assert file.read() == b"drei\n"
    assert len(opens) == 3


def test_a_missing_remote_file_is_its_own_error(memory: Any) -> None:
    with pytest.raises(FileNotFoundError):
        open_path("memory://d/no.txt")


def test_reading_and_writing_at_once_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reads and writes"):
        Pipe.of(["memory://x"]).open_files_by_fsspec("r+")


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtra, match=r"no_such_package is not installed.*headrace\[remote\]"):
        extra.import_extra("remote", "no_such_package")
    with pytest.raises(MissingExtra, match=r"headrace\[rar\]"):
        extra.require("rar", "no_such_package")
    monkeypatch.setattr(extra.importlib.util, "find_spec", lambda name: None)
    for verb in ("read_from_http", "list_files_by_fsspec", "open_files_by_fsspec", "load_parquet", "load_from_rar"):
        with pytest.raises(ModuleNotFoundError, match="pip install 'headrace"):
            getattr(Pipe.of(["x"]), verb)()


def test_listing_opening_and_saving_by_fsspec(memory: Any, tmp_path: Path) -> None:
    a, b = "memory:///d/a.txt", "memory:///d/b.txt"
    assert list(Pipe.of(["memory://d"]).list_files_by_fsspec()) == [a, b]
    assert list(Pipe.of(["memory://d", b]).list_files_by_fsspec("*b.txt")) == [b, b]
    listed = Pipe.of(["memory://d"]).list_files_by_fsspec(masks=["*a*"])
    assert list(listed) == [a]
    assert everything(listed.open_files_by_fsspec("rb")) == [(a, b"eins\nzwei\n")]
    assert everything(listed.open_files_by_fsspec()) == [(a, "eins\nzwei\n")]
    (tmp_path / "y.txt").write_text("y")
    assert list(Pipe.of([str(tmp_path)]).list_files_by_fsspec()) == [str(tmp_path / "y.txt")]
    saved = Pipe.of([("x", "1"), ("y", "2")]).save_by_fsspec(filepath_fn=lambda name: f"memory://d/s/{name}.txt")
    assert list(saved) == ["memory://d/s/x.txt", "memory://d/s/y.txt"]
    assert memory.cat("/d/s/y.txt") == b"2"
    assert len(saved) == 2
    with pytest.raises(ValueError, match="Invalid mode"):
        listed.open_files_by_fsspec("w")
