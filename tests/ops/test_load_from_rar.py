import struct
import zlib
from pathlib import Path

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import check_file_op

rarfile = pytest.importorskip("rarfile")


def block(kind: int, flags: int, body: bytes, data: bytes = b"") -> bytes:
    """One block of a RAR 4 archive: check sum, kind, flags, size, and what belongs to it."""
    head = struct.pack("<BHH", kind, flags, 7 + len(body)) + body
    return struct.pack("<H", zlib.crc32(head) & 0xFFFF) + head + data


def make_rar(path: Path, content: dict[str, bytes]) -> str:
    """A RAR archive whose members are stored as they are."""
    out = b"Rar!\x1a\x07\x00" + block(0x73, 0, bytes(6))
    for name, data in content.items():
        body = struct.pack(
            "<LLBLLBBHL", len(data), len(data), 3, zlib.crc32(data), 0x5A000000, 20, 0x30, len(name), 0x81A4
        )  # fmt: skip
        out += block(0x74, 0x8000, body + name.encode(), data)
    path.write_bytes(out + block(0x7B, 0x4000, b""))
    return str(path)


def test_files_come_out_as_streams_under_the_archives_path(tmp_path: Path) -> None:
    path = make_rar(tmp_path / "x.rar", {"a.txt": b"first", "dir/b.bin": bytes(1000)})
    got = check_file_op(Pipe.of([path]).open_files("rb").load_from_rar())
    assert got == [(f"{path}/a.txt", b"first"), (f"{path}/dir/b.bin", bytes(1000))]
    assert len(Pipe.of([path]).load_from_rar(length=2)) == 2


def test_an_archive_inside_an_archive_is_refused(tmp_path: Path) -> None:
    inner = make_rar(tmp_path / "in.rar", {"a": b"1"})
    path = make_rar(tmp_path / "x.rar", {"in.rar": Path(inner).read_bytes()})
    with pytest.raises(ValueError, match="Nested RAR archive is not supported"):
        list(Pipe.of([path]).open_files("rb").load_from_rar().load_from_rar())


def test_a_member_that_leads_out_of_the_archives_folder_is_refused(tmp_path: Path) -> None:
    path = make_rar(tmp_path / "x.rar", {"../a": b"1"})
    with pytest.raises(ValueError, match="outside of the archive's folder"):
        list(Pipe.of([path]).open_files("rb").load_from_rar())


def test_a_file_that_is_no_rar_warns_and_raises(tmp_path: Path) -> None:
    (tmp_path / "x.rar").write_bytes(b"nothing of that kind")
    with pytest.raises(rarfile.Error), pytest.warns(UserWarning, match="corrupted rarfile stream"):
        list(Pipe.of([str(tmp_path / "x.rar")]).open_files("rb").load_from_rar())
