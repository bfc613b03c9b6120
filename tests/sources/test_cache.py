import io
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.sources.cache import DiskCache
from tests.ops.file_laws import everything
from tests.sources.faulty import serving

MB = 1 << 20


class Fetching:
    """Counts how often each source is opened."""

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.opened: list[str] = []

    def of(self, name: str) -> Any:
        def fetch() -> io.BytesIO:
            self.opened.append(name)
            return io.BytesIO(name[-1:].encode() * self.size)

        return fetch

    def read(self, cache: DiskCache, name: str) -> bytes:
        with cache.open(name, self.of(name)) as file:
            return bytes(file.read())


def test_a_file_is_fetched_once(tmp_path: Path) -> None:
    cache, source = DiskCache(str(tmp_path), MB), Fetching()
    assert source.read(cache, "s3://a") == source.read(cache, "s3://a") == b"a" * 1000
    assert source.opened == ["s3://a"]
    assert cache.size() == 1000


def test_the_least_recently_used_file_goes_first(tmp_path: Path) -> None:
    cache, source = DiskCache(str(tmp_path), 3500), Fetching()
    for name in "abcabdabe":
        source.read(cache, name)
    # a and b are used again and again; c goes for d, d for e.
    assert "".join(source.opened) == "abcde"
    assert cache.size() == 3000


def test_a_file_larger_than_the_budget_is_read_and_not_kept(tmp_path: Path) -> None:
    cache, source = DiskCache(str(tmp_path), 3500), Fetching()
    source.read(cache, "a")
    large = Fetching(5000)
    assert large.read(cache, "b") == b"b" * 5000
    assert source.read(cache, "a") == b"a" * 1000
    assert (source.opened, os.listdir(tmp_path)) == (["a"], [os.path.basename(cache.path("a"))])


def test_a_removed_copy_does_not_disturb_who_reads_it(tmp_path: Path) -> None:
    cache, source = DiskCache(str(tmp_path), 1500), Fetching()
    with cache.open("a", source.of("a")) as reading:
        source.read(cache, "b")
        assert not os.path.exists(cache.path("a"))
        assert reading.read() == b"a" * 1000


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionError("down")

    cache = DiskCache(str(tmp_path), MB)
    with pytest.raises(ConnectionError):
        cache.open("a", Broken)
    assert os.listdir(tmp_path) == []


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    cache, source = DiskCache(str(tmp_path), 1500), Fetching()
    (tmp_path / "old.part").write_bytes(bytes(1400))
    assert source.read(cache, "a") == b"a" * 1000
    assert not (tmp_path / "old.part").exists()
    (Path(cache.path("b") + ".part")).write_bytes(b"half")
    assert source.read(cache, "b") == b"b" * 1000


def test_the_budget_holds_at_every_moment_of_many_fetches(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 2 * MB)
    over: list[int] = []

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if cache.size() > cache.limit:
                over.append(cache.size())
            return super().read(size if size is None or size < 0 else 100_000)

    def work(number: int) -> None:
        for turn in range(6):
            name = f"{number}-{turn}"
            with cache.open(name, lambda: Watched(bytes(700_000))) as file:
                assert len(file.read()) == 700_000

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert over == []
    assert 0 < cache.size() <= cache.limit


def fetch_all(cache: DiskCache, url: str) -> int:
    urls = [f"{url}/{i}" for i in range(4)] * 2
    return sum(len(data) for _, data in everything(Pipe.of(urls).open_files("rb", cache=cache)))


def test_processes_share_one_fetch(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 10 * MB)
    with serving({str(i): bytes([i]) * 200_000 for i in range(4)}, [("cut", 100_000)]) as server:
        with ProcessPoolExecutor(3, get_context("spawn")) as pool:
            counts = list(pool.map(fetch_all, [cache] * 3, [server.url] * 3))
        assert counts == [1_600_000] * 3
        assert sorted(path for path, asked in server.asked if asked == "bytes=0-1048575") == ["/0", "/1", "/2", "/3"]
    assert len(os.listdir(tmp_path)) == 4


def test_a_pipe_reads_through_the_cache_in_workers_and_again_without_the_server(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), MB)
    with serving({"a.txt": b"1\n2\n", "b.txt": b"3\n"}) as server:
        urls = [f"{server.url}/{name}.txt" for name in "ab"]
        pipe = Pipe.files(urls).open_files("rb", cache=cache).readlines(return_path=False)
        with Loader(pipe, workers=2, start_method="fork") as loader:
            assert list(loader) == [b"1", b"2", b"3"]
    assert list(pipe) == [b"1", b"2", b"3"]


def test_a_budget_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="positive number of bytes"):
        DiskCache(str(tmp_path), 0)
