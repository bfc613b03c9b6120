import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

from headrace.pipe.graph import Pipe
from headrace.sources.stream import StreamWrapper
from tests.ops.file_laws import check_file_op, everything
from tests.ops.test_load_from_tar import OneWay

DATA = b"content"
SHA = hashlib.sha256(DATA).hexdigest()


def test_content_with_the_right_hash_passes_as_it_came(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    path = str(tmp_path / "x")
    pipe = Pipe.of([path]).open_files("rb").check_hash({path: SHA})
    assert check_file_op(pipe) == [(path, DATA)]
    assert len(pipe) == 1


@pytest.mark.parametrize("data", [DATA, DATA.decode(), bytearray(DATA)])
def test_bytes_and_text_are_checked(data: Any) -> None:
    assert list(Pipe.of([("x", data)]).check_hash({"x": SHA})) == [("x", data)]


def test_md5_is_known() -> None:
    md5 = hashlib.md5(DATA).hexdigest()
    assert list(Pipe.of([("x", DATA)]).check_hash({"x": md5}, hash_type="md5")) == [("x", DATA)]


def test_a_stream_that_cannot_go_back_is_kept_in_memory() -> None:
    pipe = Pipe.of([("x", StreamWrapper(OneWay(DATA)))]).check_hash({"x": SHA})
    assert everything(pipe) == [("x", DATA)]


def test_without_rewind_the_stream_stands_at_its_end() -> None:
    assert everything(Pipe.of([("x", StreamWrapper(io.BytesIO(DATA)))]).check_hash({"x": SHA}, rewind=False)) == [
        ("x", b"")
    ]


def test_wrong_content_is_refused_and_its_stream_closed() -> None:
    stream = StreamWrapper(io.BytesIO(b"other"))
    with pytest.raises(RuntimeError, match="does not match"):
        list(Pipe.of([("x", stream)]).check_hash({"x": SHA}))
    assert stream.closed


def test_a_file_without_a_hash_and_an_unknown_kind_of_hash_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Unspecified hash for file y"):
        list(Pipe.of([("y", DATA)]).check_hash({"x": SHA}))
    with pytest.raises(ValueError, match="Invalid hash_type requested, should be one of"):
        Pipe.of([("x", DATA)]).check_hash({"x": SHA}, hash_type="crc")
