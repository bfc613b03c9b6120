import bz2
import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.sources.stream import StreamWrapper
from tests.ops.file_laws import check_file_op, everything

CONTENT = {"a.txt": b"first\n", "dir/b.bin": bytes(range(256)) * 100, "dir/empty": b""}


def make_tar(path: Path, mode: str = "w", content: dict[str, bytes] = CONTENT) -> str:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("dir")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(path)


class OneWay(io.RawIOBase):
    """A stream that cannot go back."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._inner.readinto(buffer)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_regular_files_come_out_as_streams_under_the_archives_path(tmp_path: Path, mode: str) -> None:
    paths = [make_tar(tmp_path / f"{i}.tar", mode) for i in range(2)]
    got = check_file_op(Pipe.tar(paths), workers=mode in ("w", "w:gz"))
    assert got == [(f"{path}/{name}", data) for path in paths for name, data in CONTENT.items()]


def test_members_may_be_read_late_in_any_order_and_the_archive_closes_after_the_last(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar")
    ((_, archive),) = Pipe.of([path]).open_files("rb")
    found = list(Pipe.of([(path, archive)]).load_from_tar())
    for (name, stream), (expected, data) in reversed(list(zip(found, CONTENT.items(), strict=True))):
        assert not archive.closed
        assert (name, stream.read(), stream.closed) == (f"{path}/{expected}", data, False)
        assert stream.seek(-2, os.SEEK_END) == len(data) - 2 if data else stream.tell() == 0
        stream.close()
    assert archive.closed


def test_a_member_of_a_plain_archive_costs_no_descriptor(tmp_path: Path, no_new_fds: Any) -> None:
    path = make_tar(tmp_path / "x.tar", content={f"{i}.txt": b"x" for i in range(2000)})
    before = len(os.listdir("/proc/self/fd"))
    found = list(Pipe.tar(path))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert sum(len(stream.read()) for _, stream in found) == 2000
    del found
    with Loader(Pipe.tar(path), workers=1) as loader:
        arrived = list(loader)
        assert {stream.read() for _, stream in arrived} == {b"x"}


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, bz2.compress])
def test_a_stream_that_cannot_go_back_is_read_in_passing(tmp_path: Path, pack: Any) -> None:
    data = pack((tmp_path / make_tar(tmp_path / "x.tar")).read_bytes())
    found = list(Pipe.of([("x.tar", OneWay(data))]).load_from_tar())
    assert everything(found) == [(f"x.tar/{name}", content) for name, content in CONTENT.items()]


def test_a_tar_file_object_is_taken_as_it_is(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar.gz", "w:gz")
    pipe = Pipe.of([path]).open_files("rb").decompress().load_from_tar()
    assert check_file_op(pipe) == [(f"{path}/{name}", data) for name, data in CONTENT.items()]


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", ".."])
def test_a_member_that_leads_out_of_the_archives_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = make_tar(tmp_path / "bad.tar", content={name: b"x"})
    with pytest.raises(ValueError, match="outside of the archive's folder"):
        list(Pipe.tar(path))


def test_an_absolute_member_stays_under_the_archives_path(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "abs.tar", content={"/etc/motd": b"x", "in/../ok": b"y"})
    assert [name for name, _ in Pipe.tar(path)] == [f"{path}/etc/motd", f"{path}/ok"]


def test_a_file_that_is_no_tar_warns_and_raises(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar at all" * 100)
    with (
        pytest.warns(UserWarning, match="Unable to extract files from corrupted tarfile stream"),
        pytest.raises(tarfile.ReadError),
    ):
        list(Pipe.tar(tmp_path / "x.tar"))


def test_a_plain_archive_that_is_cut_short_warns_and_raises_before_the_member_is_read(tmp_path: Path) -> None:
    data = Path(make_tar(tmp_path / "x.tar", content={"big": bytes(100_000)})).read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[:50_000])
    with (
        pytest.warns(UserWarning, match="corrupted tarfile stream"),
        pytest.raises(tarfile.ReadError, match=r"cut\.tar, byte \d+: it is cut off at byte 50000"),
    ):
        everything(Pipe.tar(tmp_path / "cut.tar"))


def test_a_compressed_archive_that_is_cut_short_warns_and_raises(tmp_path: Path) -> None:
    data = Path(make_tar(tmp_path / "x.tgz", "w:gz", {"big": os.urandom(100_000)})).read_bytes()
    (tmp_path / "cut.tgz").write_bytes(data[:50_000])
    with pytest.raises((EOFError, tarfile.ReadError)), pytest.warns(UserWarning, match="corrupted tarfile stream"):
        everything(Pipe.tar(tmp_path / "cut.tgz"))


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        ("x.tar", "pathname binary data should be tuple type, but it is type"),
        (("x.tar",), "tuple length should be 2, but got 1"),
        ((1, io.BytesIO()), "pathname within the tuple should have string type"),
        (("x.tar", 1), "binary stream within the tuple should have IOBase or its subclasses"),
        (("x.tar", io.StringIO()), "open the file with mode 'rb'"),
    ],
)
@pytest.mark.parametrize(
    "verb", ["load_from_tar", "load_from_zip", "load_from_bz2", "load_from_xz", "load_from_tfrecord", "decompress"]
)
def test_a_sample_that_is_no_path_and_stream_is_named(verb: str, sample: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        list(getattr(Pipe.of([sample]), verb)())


@pytest.mark.parametrize("verb", ["load_from_tar", "load_from_zip", "load_from_tfrecord"])
def test_the_length_is_known_only_when_given(verb: str) -> None:
    assert len(getattr(Pipe.of(["x"]), verb)(length=5)) == 5
    with pytest.raises(TypeError):
        len(getattr(Pipe.of(["x"]), verb)())


def test_unread_members_are_closed_when_they_are_dropped(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "x.tar")
    ((_, archive),) = Pipe.of([path]).open_files("rb")
    kept = [stream for _, stream in Pipe.of([(path, archive)]).load_from_tar()]
    assert isinstance(kept[0], StreamWrapper)
    assert not archive.closed
    kept.clear()
    assert archive.closed
