import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headrace.ops.archives.decompress import CompressionType
from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op

DATA = b"the same content\n" * 50
PACKED = {"x.gz": gzip.compress(DATA), "x.bz2": bz2.compress(DATA), "x.xz": lzma.compress(DATA)}


def streams(*names: str) -> Pipe[Any]:
    return Pipe.of([(name, io.BytesIO(PACKED[name])) for name in names])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, data in PACKED.items():
        (tmp_path / name).write_bytes(data)
    return [str(tmp_path / name) for name in PACKED]


def test_a_file_is_decompressed_by_the_end_of_its_name(files: list[str]) -> None:
    got = check_file_op(Pipe.of(files).open_files("rb").decompress())
    assert got == [(path, DATA) for path in files]


@pytest.mark.parametrize("given", ["gzip", "GZIP", CompressionType.GZIP])
def test_a_given_type_wins_over_the_name(given: Any) -> None:
    ((name, stream),) = Pipe.of([("x.unknown", io.BytesIO(PACKED["x.gz"]))]).decompress(given)
    with stream:
        assert (name, stream.read()) == ("x.unknown", DATA)


def test_the_old_name_does_the_same() -> None:
    ((_, stream),) = streams("x.xz").extract()
    with stream:
        assert stream.read() == DATA


def test_archives_come_as_archive_objects(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(__file__, "me.py")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.write(__file__, "me.py")
    pipe = Pipe.of([str(tmp_path / "a.tar.gz"), str(tmp_path / "a.zip")]).open_files("rb").decompress()
    (_, tar), (_, zipped) = pipe
    with tar, zipped:
        assert (tar.getnames(), zipped.namelist()) == (["me.py"], ["me.py"])


def test_an_unknown_type_and_an_unknown_ending_are_refused() -> None:
    with pytest.raises(ValueError, match="'abc' is not a valid CompressionType"):
        streams("x.gz").decompress("ABC")
    with pytest.raises(RuntimeError, match=r"has file extension \.7z, which does not match what are supported"):
        list(Pipe.of([("x.7z", io.BytesIO())]).decompress())


@pytest.mark.parametrize("suffix", ["bz2", "xz"])
def test_one_compressed_file_loses_its_ending_and_nothing_more(suffix: str, tmp_path: Path) -> None:
    # The letters of the ending stand at the end of the name too.
    path = tmp_path / f"zb2.x.{suffix}"
    path.write_bytes(PACKED[f"x.{suffix}"])
    pipe = getattr(Pipe.of([str(path)]).open_files("rb"), f"load_from_{suffix}")()
    assert check_file_op(pipe) == [(str(tmp_path / "zb2.x"), DATA)]
    assert len(pipe) == 1


@pytest.mark.parametrize(("suffix", "called"), [("bz2", "bzip2"), ("xz", "xz/lzma")])
def test_a_file_that_is_something_else_warns_raises_and_is_closed(suffix: str, called: str) -> None:
    stream = io.BytesIO(b"something else entirely")
    with (
        pytest.warns(UserWarning, match=f"Unable to extract files from corrupted {called} stream"),
        pytest.raises((OSError, lzma.LZMAError)),
    ):
        list(getattr(Pipe.of([(f"x.{suffix}", stream)]), f"load_from_{suffix}")())
    assert stream.closed


def test_closing_the_content_closes_the_file_once(files: list[str]) -> None:
    ((path, outer),) = Pipe.of(files[:1]).open_files("rb")
    ((_, inner),) = Pipe.of([(path, outer)]).decompress()
    assert not outer.closed
    inner.close()
    inner.close()
    assert outer.closed
