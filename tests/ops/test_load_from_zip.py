import io
import zipfile
from pathlib import Path

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op, everything
from tests.ops.test_load_from_tar import OneWay

CONTENT = {"a.txt": b"first\n", "dir/b.bin": bytes(range(256)) * 100, "dir/empty": b""}


def make_zip(path: Path, content: dict[str, bytes] = CONTENT) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dir/", b"")
        for name, data in content.items():
            archive.writestr(name, data)
    return str(path)


def test_files_come_out_as_streams_under_the_archives_path(tmp_path: Path) -> None:
    paths = [make_zip(tmp_path / f"{i}.zip") for i in range(2)]
    got = check_file_op(Pipe.of(paths).open_files("rb").load_from_zip())
    assert got == [(f"{path}/{name}", data) for path in paths for name, data in CONTENT.items()]


def test_members_may_be_read_in_any_order_and_the_archive_closes_after_the_last(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip")
    ((_, archive),) = Pipe.of([path]).open_files("rb")
    found = list(Pipe.of([(path, archive)]).load_from_zip())
    for name, stream in reversed(found):
        assert not archive.closed
        assert stream.read() == CONTENT[name.removeprefix(f"{path}/")]
        stream.close()
    assert archive.closed


def test_a_stream_that_cannot_go_back_is_copied_first(tmp_path: Path) -> None:
    data = Path(make_zip(tmp_path / "x.zip")).read_bytes()
    pipe = Pipe.of([("x.zip", OneWay(data))]).load_from_zip()
    assert everything(pipe) == [(f"x.zip/{name}", content) for name, content in CONTENT.items()]


def test_a_zip_file_object_is_taken_as_it_is(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip")
    pipe = Pipe.of([path]).open_files("rb").decompress().load_from_zip()
    assert check_file_op(pipe) == [(f"{path}/{name}", data) for name, data in CONTENT.items()]


def test_a_member_that_leads_out_of_the_archives_folder_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "bad.zip", {"../../out.txt": b"x"})
    with pytest.raises(ValueError, match="outside of the archive's folder"):
        list(Pipe.of([path]).open_files("rb").load_from_zip())


def test_a_file_that_is_no_zip_warns_and_raises() -> None:
    with (
        pytest.warns(UserWarning, match="Unable to extract files from corrupted zipfile stream"),
        pytest.raises(zipfile.BadZipFile),
    ):
        list(Pipe.of([("x.zip", io.BytesIO(b"no zip"))]).load_from_zip())
