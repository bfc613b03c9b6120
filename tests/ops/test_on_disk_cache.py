import hashlib
import io
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from headrace.pipe.graph import Pipe
from headrace.sources.lock import hold
from tests.ops.file_laws import check_file_op
from tests.ops.test_load_from_tar import CONTENT, make_tar


class Making:
    """Makes content for a name, and notes on disk that it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def target(self, name: str) -> str:
        return f"{self.folder}/cache/{name}.txt"

    def make(self, name: str) -> tuple[str, bytes]:
        with open(f"{self.folder}/log", "a") as log:
            log.write(f"{name}\n")
        return name, name.encode() * 3

    def made(self) -> list[str]:
        path = Path(self.folder, "log")
        return path.read_text().split() if path.exists() else []

    def pipe(self, names: str = "abc", **more: Any) -> Pipe[str]:
        return Pipe.of(list(names)).on_disk_cache(self.target, **more).map(self.make).end_caching(same_filepath_fn=True)


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return Making(tmp_path)


def test_the_section_runs_once_and_the_paths_come_in_the_same_order_cold_and_warm(making: Making) -> None:
    cold = list(making.pipe("cab"))
    assert cold == [making.target(name) for name in "cab"]
    assert making.made() == ["c", "a", "b"]
    assert list(making.pipe("cab")) == cold
    assert list(making.pipe("cdab")) == [making.target(name) for name in "cdab"], "a new file stands at its own place"
    assert making.made() == ["c", "a", "b", "d"]
    assert Path(cold[0]).read_bytes() == b"ccc"
    assert sorted(os.listdir(f"{making.folder}/cache")) == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_the_laws_hold(making: Making) -> None:
    check_file_op(making.pipe())


def test_a_wrong_file_is_made_again(making: Making) -> None:
    hashes = {making.target(name): hashlib.sha256(name.encode() * 3).hexdigest() for name in "abc"}
    list(making.pipe(hash_dict=hashes))
    Path(making.target("b")).write_bytes(b"damaged")
    list(making.pipe(hash_dict=hashes))
    assert making.made() == ["a", "b", "c", "b"]
    assert Path(making.target("b")).read_bytes() == b"bbb"


def test_a_check_of_the_users_decides_too(making: Making) -> None:
    list(making.pipe())
    list(making.pipe(extra_check_fn=lambda path: not path.endswith("c.txt")))
    assert making.made() == ["a", "b", "c", "c"]


def test_content_that_never_gets_the_right_hash_is_an_error(making: Making) -> None:
    with pytest.raises(RuntimeError, match="does not match"):
        list(making.pipe("a", hash_dict={making.target("a"): "0" * 64}))
    with pytest.raises(RuntimeError, match="Unspecified hash for file"):
        list(making.pipe("ab", hash_dict={making.target("a"): hashlib.sha256(b"aaa").hexdigest()}))


def test_one_archive_becomes_many_files(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar")
    opened: list[str] = []

    def note(sample: tuple[str, Any]) -> bool:
        opened.append(sample[0])
        return not sample[0].endswith("empty")

    def inside(name: str) -> str:
        return str(tmp_path / "out" / os.path.relpath(name, path))

    pipe = (
        Pipe.of([path])
        .on_disk_cache(filepath_fn=lambda name: str(tmp_path / "out" / "x"))
        .open_files("rb")
        .load_from_tar()
        .filter(note)
        .end_caching(filepath_fn=inside)
    )
    expected = [str(tmp_path / "out" / name) for name in ("a.txt", "dir/b.bin")]
    assert list(pipe) == expected
    assert list(pipe) == expected
    assert len(opened) == 3, "warm, the archive is not opened"
    assert Path(expected[1]).read_bytes() == CONTENT["dir/b.bin"]
    os.unlink(expected[0])
    assert list(pipe) == expected


def test_a_list_of_names_is_cached_when_all_are_there(making: Making, tmp_path: Path) -> None:
    def both(name: str) -> list[str]:
        return [making.target(f"{name}1"), making.target(f"{name}2")]

    pipe = (
        Pipe.of(["a"])
        .on_disk_cache(both)
        .map(making.make)
        .flatmap(lambda made: [(making.target("a2"), made[1]), (making.target("a1"), made[1])])
        .end_caching()
    )
    assert list(pipe) == list(pipe) == both("a")
    assert making.made() == ["a"]


def test_text_and_streams_are_written(tmp_path: Path) -> None:
    target = str(tmp_path / "x")
    text = Pipe.of([target]).on_disk_cache().map(lambda path: (path, io.StringIO("ü"))).end_caching("w")
    assert list(text) == [target]
    assert Path(target).read_text(encoding="utf-8") == "ü"


def test_an_interrupted_section_leaves_no_file_and_no_lock(making: Making, tmp_path: Path) -> None:
    def fail(name: str) -> Any:
        raise KeyError(name)

    pipe = Pipe.of(["a"]).on_disk_cache(making.target).map(fail).end_caching(same_filepath_fn=True)
    with pytest.raises(KeyError):
        list(pipe)
    assert os.listdir(tmp_path / "cache") == []


def test_a_lock_file_of_a_dead_process_does_not_block(making: Making, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    Path(making.target("a") + ".lock").write_text("99999")
    assert list(making.pipe("a")) == [making.target("a")]


def test_a_lock_file_beside_a_file_that_is_there_is_removed_unless_somebody_holds_it(making: Making) -> None:
    assert list(making.pipe("a")) == [making.target("a")]
    lock = Path(making.target("a") + ".lock")
    lock.write_text("99999")  # of a process that was killed between the last write and giving the lock back
    assert list(making.pipe("a")) == [making.target("a")]
    assert not lock.exists()
    with hold(str(lock), 1):
        assert list(making.pipe("a")) == [making.target("a")]
        assert lock.exists()


def test_a_file_that_another_process_does_not_finish_is_an_error_with_its_owner(making: Making, tmp_path: Path) -> None:
    pipe = Pipe.of(["a"]).on_disk_cache(making.target).map(making.make)
    (tmp_path / "cache").mkdir()
    with (
        hold(making.target("a") + ".lock", 1),
        pytest.raises(Exception, match=f"OnDiskCache Exception: .*{os.getpid()}"),
    ):
        list(pipe.end_caching(same_filepath_fn=True, timeout=0.05))


def read_all(pipe: Pipe[str]) -> list[str]:
    return list(pipe)


def test_processes_make_each_file_once(making: Making) -> None:
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        results = list(pool.map(read_all, [making.pipe("abcdefgh")] * 3))
    assert results == [[making.target(name) for name in "abcdefgh"]] * 3
    assert sorted(making.made()) == list("abcdefgh")


def test_misuse_is_named(making: Making) -> None:
    opened = Pipe.of(["a"]).on_disk_cache()
    with pytest.raises(RuntimeError, match=r"Please call `end_caching\(\)` before iteration\."):
        list(opened)
    with pytest.raises(RuntimeError, match="Expected `OnDiskCacheHolder` existing in pipeline"):
        Pipe.of(["a"]).end_caching()
    with pytest.raises(RuntimeError, match="can only be invoked once"):
        opened.end_caching().end_caching()
    with pytest.raises(ValueError, match="`filepath_fn` is mutually exclusive with `same_filepath_fn`"):
        opened.end_caching(filepath_fn=str, same_filepath_fn=True)
    with pytest.raises(ValueError, match="Invalid hash_type"):
        Pipe.of(["a"]).on_disk_cache(hash_dict={}, hash_type="crc")
    with pytest.raises(ValueError, match="joins or splits"):
        opened.zip(opened).end_caching()
    with pytest.raises(AssertionError, match="not a generator"):
        list(Pipe.of(["a"]).on_disk_cache(lambda name: (n for n in name)).end_caching())
    with pytest.raises(TypeError, match=r"\(path, content\) pairs"):
        list(Pipe.of([making.target("z")]).on_disk_cache().map(len).end_caching())
    streams = Pipe.of([making.target("z")]).on_disk_cache().map(lambda path: (path, io.BytesIO()))
    with pytest.raises(TypeError, match="skip_read"):
        list(streams.end_caching(skip_read=True))


def test_caches_nest(making: Making, tmp_path: Path) -> None:
    pipe = (
        Pipe.of(["a"])
        .on_disk_cache(lambda name: str(tmp_path / "outer"))
        .on_disk_cache(making.target)
        .map(making.make)
        .end_caching(same_filepath_fn=True)
        .map(lambda path: (str(tmp_path / "outer"), Path(path).read_bytes() + b"!"))
        .end_caching()
    )
    assert list(pipe) == list(pipe) == [str(tmp_path / "outer")]
    assert (tmp_path / "outer").read_bytes() == b"aaa!"
