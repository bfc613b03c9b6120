import gc
import io
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.sources.stream import StreamWrapper
from tests.depth import depth


class Counting(io.BytesIO):
    """Counts how often it is closed by hand."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self.closings = 0

    def close(self) -> None:
        self.closings += 1
        super().close()


@pytest.fixture
def watched() -> Iterator[None]:
    StreamWrapper.debug_unclosed_streams = True
    yield
    StreamWrapper.debug_unclosed_streams = False
    StreamWrapper.session_streams.clear()


def test_a_stream_is_closed_exactly_once() -> None:
    file = Counting()
    stream = StreamWrapper(file)
    threads = [threading.Thread(target=stream.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del stream
    gc.collect()
    assert file.closings == 1


def test_a_dropped_stream_closes() -> None:
    file = Counting()
    StreamWrapper(file)
    assert file.closings == 1


def test_a_parent_closes_with_its_last_child_and_not_before() -> None:
    file = Counting()
    parent = StreamWrapper(file)
    children = [StreamWrapper(io.BytesIO(), parent) for _ in range(3)]
    assert parent.child_counter == 3
    children[0].close()
    parent.autoclose()
    children[1].close()
    children[1].close()
    assert (parent.closed, parent.child_counter) == (False, 1)
    children[2].close()
    assert (parent.closed, file.closings) == (True, 1)


def test_a_parent_without_children_closes_at_once() -> None:
    parent = StreamWrapper(io.BytesIO())
    parent.autoclose()
    assert parent.closed


def test_a_parent_that_is_no_stream_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Parent stream should be StreamWrapper"):
        StreamWrapper(io.BytesIO(), io.BytesIO())  # type: ignore[arg-type]


def test_streams_inside_samples_are_found_and_closed() -> None:
    streams = [StreamWrapper(io.BytesIO()) for _ in range(4)]
    StreamWrapper.close_streams({"a": [streams[0], (streams[1], 5)], "b": streams[2], "c": "text"})
    assert [stream.closed for stream in streams] == [True, True, True, False]
    streams[3].close()


def test_containers_that_are_too_deep_are_left_alone() -> None:
    stream = StreamWrapper(io.BytesIO())
    deep: Any = stream
    for _ in range(20):
        deep = [deep]
    StreamWrapper.close_streams(deep)
    assert not stream.closed
    stream.close()


def test_open_streams_are_listed_when_asked_for(watched: None) -> None:
    stream = StreamWrapper(io.BytesIO(), name="here")
    assert list(StreamWrapper.session_streams) == [stream]
    assert repr(stream) == "StreamWrapper<here>"
    stream.close()
    assert not StreamWrapper.session_streams


@pytest.mark.parametrize(
    "file", [io.BytesIO(b"abcdef"), io.StringIO("abcdef"), io.BufferedReader(io.BytesIO(b"abcdef"))]
)
def test_a_stream_travels_with_what_is_not_read_yet(file: Any) -> None:
    with StreamWrapper(file, name="n") as stream:
        start = stream.read(2)
        with pickle.loads(pickle.dumps(stream)) as copy:
            rest = copy.read()
            assert stream.read() == rest
        assert (len(start), len(rest), copy.name) == (2, 4, "n")


def test_a_closed_stream_and_one_without_content_cannot_travel() -> None:
    stream = StreamWrapper(io.BytesIO())
    stream.close()
    with pytest.raises(TypeError, match="is closed"):
        pickle.dumps(stream)
    with pytest.raises(TypeError, match="cannot travel"):
        pickle.dumps(StreamWrapper(object()))


def test_an_error_while_closing_still_counts_the_child_as_closed() -> None:
    class Bad(io.BytesIO):
        failed = False

        def close(self) -> None:
            if not self.failed:
                self.failed = True
                raise OSError("cannot")
            super().close()

    parent = StreamWrapper(io.BytesIO())
    child = StreamWrapper(Bad(), parent)
    parent.autoclose()
    with pytest.raises(OSError, match="cannot"):
        child.close()
    assert parent.closed


def test_a_stream_in_a_cycle_closes_its_file_before_the_file_is_collected(tmp_path: Any) -> None:
    # A file that is collected while open warns, and warnings are errors here.
    (tmp_path / "x").touch()
    for _ in range(depth(5, 20)):
        parent = StreamWrapper((tmp_path / "x").open("rb"))
        child = StreamWrapper((tmp_path / "x").open("rb"), parent)
        parent.autoclose()
        cycle: Any = [parent, child, child.file_obj, parent.file_obj]
        cycle.append(cycle)
        del parent, child, cycle
        gc.collect()
