"""Remote files: every way of reading them, over every kind of origin, against every fault."""

import io
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.observe.meter import files
from headrace.sources import http, remote, retry, stores
from headrace.sources.bytes import ByteFile, DamagedFile, open_bytes
from headrace.sources.open import open_path
from headrace.sources.remote import BLOCK, divide, join
from headrace.sources.retry import FileChanged
from tests.conftest import RunScript
from tests.sources.faulty import Faulty, serving

DATA = bytes(range(256)) * 40_000
"""Ten megabytes, in which every place can be told from its neighbours."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four attempts, with pauses of a millisecond; blocks of a megabyte."""
    for name, value in {"ATTEMPTS": 4, "FIRST_PAUSE": 0.001, "LONGEST_PAUSE": 0.002}.items():
        monkeypatch.setattr(retry, name, value)
    monkeypatch.setattr(remote, "BLOCK", 1 << 20)
    files.taken()


@pytest.fixture(params=["http", "s3"])
def served(request: pytest.FixtureRequest) -> tuple[Faulty, str]:
    """A server with one file, and the file's URL."""
    if request.param == "s3":
        server: Faulty = request.getfixturevalue("bucket")
        server.files["bkt/x"] = DATA
        return server, "s3://bkt/x"
    server = request.getfixturevalue("web")
    server.files["x"] = DATA
    return server, f"{server.url}/x"


@pytest.fixture
def web() -> Any:
    with serving({}) as server:
        yield server


def test_near_spans_are_one_request_and_far_ones_several(served: tuple[Faulty, str]) -> None:
    server, url = served
    with open_bytes(url) as file:
        assert file.size == len(DATA)
        server.reset()
        spans = [(5_000_000, 1000), (10, 20), (5_001_500, 7), (100, 0), (9_999_999, 1)]
        assert [bytes(part) for part in file.pread_many(spans)] == [DATA[at : at + size] for at, size in spans]
    assert sorted(asked for _, asked in server.asked if asked) == [
        "bytes=10-29",
        "bytes=5000000-5001506",
        "bytes=9999999-9999999",
    ]


def test_random_spans_are_the_bytes_of_the_file(served: tuple[Faulty, str]) -> None:
    chance = random.Random(1)
    with open_bytes(served[1]) as file:
        for _ in range(10):
            spans = [(at := chance.randrange(len(DATA)), chance.randrange(len(DATA) - at + 1)) for _ in range(7)]
            assert [bytes(part) for part in file.pread_many(spans)] == [DATA[at : at + size] for at, size in spans]


def test_reading_behind_the_end_is_an_error_that_names_file_and_byte(served: tuple[Faulty, str]) -> None:
    with (
        open_bytes(served[1]) as file,
        pytest.raises(DamagedFile, match=r"x ends at byte 10240000, in the middle of 20"),
    ):
        file.pread(len(DATA) - 3, 20)


def test_a_stream_has_the_bytes_of_the_file_whatever_is_asked_of_it(served: tuple[Faulty, str]) -> None:
    chance, plain = random.Random(2), io.BytesIO(DATA)
    with open_path(served[1]) as file:
        assert file.size == len(DATA)
        for _ in range(60):
            if chance.random() < 0.3:
                place = chance.randrange(len(DATA)) if chance.random() < 0.7 else plain.tell() + 10
                assert file.seek(place) == plain.seek(place)
            size = chance.choice([1, 100, 300_000, 1 << 20])
            assert file.read(size) == plain.read(size)
        file.seek(0)
        assert file.read() == DATA
        assert file.seek(-5, io.SEEK_END) == len(DATA) - 5
        assert file.read() == DATA[-5:]


def test_a_small_file_is_one_request(served: tuple[Faulty, str]) -> None:
    server, url = served
    for name in server.files:
        server.files[name] = b"small"
    with open_path(url) as file:
        assert file.read() == b"small"
    assert len(server.asked) == 1


def test_an_empty_file_is_empty(served: tuple[Faulty, str]) -> None:
    server, url = served
    for name in server.files:
        server.files[name] = b""
    with open_path(url) as file:
        assert file.read() == b""
    assert open_bytes(url).size == 0


def by_stream(url: str) -> bytes:
    with open_path(url) as file:
        content: bytes = file.read()
        return content


def by_spans(url: str) -> bytes:
    with open_bytes(url) as file:
        parts = file.pread_many([(at, 300_000) for at in range(0, 9_900_000, 300_000)])
        return b"".join([*parts, file.pread(9_900_000, 340_000)])


PASSING: dict[str, list[Any]] = {
    "503": [None, 503, None, 503, 500, 429],
    "reset": [None, ("reset", 100_000), None, ("reset", 0), ("reset", 5)],
    "cut": [None, ("cut", 100_000), ("cut", 1), None, ("cut", 700_000)],
    "dropped": [("drop",), None, ("drop",), ("drop",)],
}


@pytest.mark.parametrize("read", [by_stream, by_spans])
@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_survived(served: tuple[Faulty, str], name: str, read: Callable[[str], bytes]) -> None:
    server, url = served
    server.faults = list(PASSING[name])
    assert read(url) == DATA
    reads = files.taken()
    assert reads is not None
    assert reads.retries == sum(fault is not None for fault in PASSING[name])


@pytest.mark.parametrize("read", [by_stream, by_spans])
@pytest.mark.parametrize("fault", [("changed",), ("longer",)])
def test_a_file_that_changes_is_an_error_that_names_it(
    served: tuple[Faulty, str], fault: Any, read: Callable[[str], bytes]
) -> None:
    server, url = served
    server.faults = [None, None, None, fault]
    with pytest.raises(FileChanged, match=r"/x changed while it was read"):
        read(url)


def test_a_file_in_another_state_than_the_known_one_is_an_error(served: tuple[Faulty, str]) -> None:
    server, url = served
    known = open_bytes(url).state
    server.faults = [("changed",)]
    with open_bytes(url, known) as file, pytest.raises(FileChanged, match="make the pipe anew"):
        file.pread(0, 10)


@pytest.mark.parametrize("kind", ["stall", "trickle"])
def test_a_connection_that_stands_still_is_given_up_in_time(
    served: tuple[Faulty, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = served
    monkeypatch.setattr(http, "REQUEST", 0.3)
    monkeypatch.setattr(http, "TIMEOUT", 0.3)
    monkeypatch.setattr(stores, "REQUEST", stores.REQUEST * (0.3 / 60))
    stores.store_of.cache_clear()
    server.faults = [None, (kind, 1000)]
    with open_bytes(url) as file:
        assert file.size == len(DATA)
        assert file.pread(100_000, 50_000) == DATA[100_000:150_000]


def test_patience_ends_a_read_that_never_ends(served: tuple[Faulty, str], monkeypatch: pytest.MonkeyPatch) -> None:
    server, url = served
    monkeypatch.setattr(retry, "PATIENCE", 0.0)
    server.fail = lambda number, path: 503
    with pytest.raises(OSError, match="503") as caught:
        open_path(url)
    assert any("when 0 seconds had passed" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("status", [403, 404])
def test_what_will_not_pass_is_asked_once(served: tuple[Faulty, str], status: int) -> None:
    server, url = served
    server.faults = [status]
    with pytest.raises(OSError, match=r"x"):
        open_path(url)
    assert len(server.asked) == 1


def test_a_server_that_answers_another_range_is_not_believed(web: Faulty) -> None:
    web.files["x"] = DATA
    with open_bytes(f"{web.url}/x") as file:
        assert file.size == len(DATA)
        web.faults = [("shifted",), ("shifted",)]
        assert file.pread(100, 20) == DATA[100:120]


def test_a_server_that_gives_the_whole_file_for_a_range_is_not_believed(web: Faulty) -> None:
    web.files["x"] = DATA
    web.fail = lambda number, path: ("whole",)
    with open_path(f"{web.url}/x") as file:
        assert file.read() == DATA
    with pytest.raises(http.Unranged, match="does not answer requests for a part"):
        open_bytes(f"{web.url}/x").pread(5, 5)


def test_spans_are_joined_and_divided() -> None:
    assert join([(0, 10), (20, 10), (5, 3), (1 << 20, 5), (7, 0)]) == [(0, 30), (1 << 20, (1 << 20) + 5)]
    assert divide(0, 3 << 20) == [(at << 20, (at + 1) << 20) for at in range(3)]
    assert divide(7, 8) == [(7, 8)]
    assert BLOCK == 4 << 20


def test_a_real_store_gives_what_was_put_there(s3: Any) -> None:
    s3.put_object(Bucket="bkt", Key="a/ü b.bin", Body=DATA)
    s3.put_object(Bucket="bkt", Key="empty", Body=b"")
    with open_bytes("s3://bkt/a/ü b.bin") as file:
        assert file.size == len(DATA)
        assert file.pread(77, 1000) == DATA[77:1077]
        s3.put_object(Bucket="bkt", Key="a/ü b.bin", Body=DATA[::-1])
        with pytest.raises(FileChanged):
            file.pread(78, 10)
    assert by_stream("s3://bkt/empty") == b""
    with pytest.raises(FileNotFoundError, match="s3://bkt/none does not exist"):
        open_path("s3://bkt/none")


def test_a_forked_child_of_a_process_that_used_obstore_says_so_and_does_not_hang(
    bucket: Faulty, run_script: RunScript
) -> None:
    bucket.files["bkt/x"] = b"there"
    done = run_script(
        """
        import importlib.util
        import os
        from headrace.errors import BadPipe
        from headrace.sources.open import open_path

        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "s3fs" else find(name, *more)
        assert open_path("s3://bkt/x").read() == b"there"
        pid = os.fork()
        if not pid:
            try:
                open_path("s3://bkt/x").read()
            except BadPipe as error:
                os._exit(7 if "start_method='server'" in str(error) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
        env=dict(os.environ),
    )
    assert done.stdout.strip() == "7", done.stderr


def test_reads_are_counted_where_they_are_asked_for(served: tuple[Faulty, str]) -> None:
    by_stream(served[1])
    reads = files.taken()
    assert reads is not None
    assert (reads.bytes, reads.opens) == (len(DATA), 1)
    assert reads.requests == len(served[0].asked)


def test_a_file_is_a_file_whatever_opens_it(served: tuple[Faulty, str], tmp_path: Any) -> None:
    (tmp_path / "x").write_bytes(DATA)
    for file in (open_bytes(served[1]), open_bytes(tmp_path / "x"), open_bytes(f"file://{tmp_path}/x")):
        assert isinstance(file, ByteFile)
        room = bytearray(1000)
        file.read_into(12_345, memoryview(room))
        assert room == DATA[12_345:13_345]
        with file.stream(10_000_000) as stream:
            assert stream.read() == DATA[10_000_000:]
        assert file.forward().pread(500_000, 7) == DATA[500_000:500_007]
        file.close()
