import io
from typing import Any

import pytest

from headrace.sources import retry
from headrace.sources.http import open_http
from headrace.sources.open import open_path, open_stream
from headrace.sources.retry import FileChanged, ResumingFile, is_transient, pause
from tests.sources.faulty import serving

DATA = bytes(range(256)) * 4000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four attempts, with pauses of a millisecond."""
    for name, value in {"ATTEMPTS": 4, "FIRST_PAUSE": 0.001, "LONGEST_PAUSE": 0.002}.items():
        monkeypatch.setattr(retry, name, value)


def test_a_read_goes_on_at_the_byte_reached() -> None:
    with serving({"x": DATA}, [("cut", 100_000), ("drop",), ("cut", 300_000), 503]) as server:
        with open_http(f"{server.url}/x") as file:
            assert file.read() == DATA
        starts = [asked for _, asked in server.asked]
    assert starts[-1] == "bytes=400000-1048575", "not a byte was asked for twice, and none was left out"
    assert len(starts) == 5


def test_a_server_without_ranges_is_read_again_up_to_the_byte() -> None:
    with (
        serving({"x": DATA}, [("cut", 100_000), ("cut", 600_000)], ranges=False) as server,
        open_http(f"{server.url}/x") as file,
    ):
        assert file.read() == DATA


def test_small_reads_see_the_same_bytes_as_one_large_read() -> None:
    with (
        serving({"x": DATA}, [("cut", 7), ("cut", 70_000), 500, ("cut", 1)]) as server,
        open_http(f"{server.url}/x") as file,
    ):
        assert b"".join(iter(lambda: file.read(9_999), b"")) == DATA


def test_a_file_that_changes_while_it_is_read_is_an_error_at_once() -> None:
    with (
        serving({"x": DATA}, [("cut", 1000), ("changed",)]) as server,
        pytest.raises(FileChanged, match="/x changed while it was read"),
    ):
        open_http(f"{server.url}/x")


def test_a_missing_file_is_not_tried_twice() -> None:
    with serving({}) as server, pytest.raises(OSError, match="404") as caught:
        open_http(f"{server.url}/no")
    assert len(server.asked) == 1
    assert type(caught.value).__name__ == "HTTPError"


def test_a_server_that_never_recovers_is_given_up_with_the_place() -> None:
    with (
        serving({"x": DATA}, [("cut", 50_000), 503, 503, 503, 503, 503]) as server,
        pytest.raises(OSError, match="503") as caught,
    ):
        open_http(f"{server.url}/x")
    assert any("at byte 50000 after 4 attempts" in note for note in caught.value.__notes__)


def test_progress_starts_the_count_of_attempts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    with (
        serving({"x": DATA}, [("cut", 100_000)] * 9) as server,
        open_http(f"{server.url}/x") as file,
    ):
        assert file.read() == DATA


def test_a_remote_file_can_seek() -> None:
    with serving({"x": DATA}) as server, open_http(f"{server.url}/x") as file:
        assert file.size == len(DATA)
        file.seek(-3, io.SEEK_END)
        assert file.read() == DATA[-3:]
        file.seek(500_000)
        assert file.read(10) == DATA[500_000:500_010]
        assert file.tell() == 500_010


def test_a_body_of_unknown_length_ends_where_the_server_ends_it() -> None:
    with serving({"x": DATA}, [("chunked", len(DATA))]) as server, open_http(f"{server.url}/x") as file:
        assert file.read() == DATA


def test_an_empty_file_is_empty() -> None:
    with serving({"x": b""}) as server, open_http(f"{server.url}/x") as file:
        assert file.read() == b""


def test_a_url_opens_as_text_and_bytes_through_the_one_door() -> None:
    with serving({"x": "grün\nblau\n".encode()}, [("cut", 3)]) as server:
        with open_path(f"{server.url}/x", "r") as file:
            assert list(file) == ["grün\n", "blau\n"]
        with open_stream(f"{server.url}/x") as stream:
            assert stream.read() == "grün\nblau\n".encode()


def test_pauses_grow_and_differ_between_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 1)
    monkeypatch.setattr(retry, "LONGEST_PAUSE", 8)
    pauses = [pause(n, "a") for n in (1, 2, 3, 4, 5, 6)]
    for seconds, most in zip(pauses, (1, 2, 4, 8, 8, 8), strict=True):
        assert most / 2 <= seconds <= most
    assert pause(1, "a") != pause(1, "b")


def test_closing_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        calls = 0

        def __call__(self, offset: int) -> tuple[Any, int]:
            self.calls += 1
            if self.calls == 1:
                return io.BytesIO(b""), 10
            raw._stop.set()
            raise ConnectionError("down")

    monkeypatch.setattr(retry, "FIRST_PAUSE", 1000)
    monkeypatch.setattr(retry, "LONGEST_PAUSE", 1000)
    raw = ResumingFile(Refusing(), "x")
    raw._stop.set()  # as close() does from another thread
    with pytest.raises(ValueError, match="closed"):
        raw.read(1)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (FileChanged(), False),
        (KeyError(), False),
        (EOFError(), True),
    ],
)
def test_only_what_may_pass_is_tried_again(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes
