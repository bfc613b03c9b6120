"""A tar archive that is damaged anywhere is an error that names the file and the place, or it gives all that it holds.

Every block of an archive is damaged in turn, and the archive is cut at every block, as a file, as a one-way stream and
compressed. What must never happen: fewer members, and no word about it.
"""

import gzip
import io
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pytest

from headrace.pipe.graph import Pipe
from tests.ops.file_laws import everything
from tests.ops.test_load_from_tar import OneWay

BLOCK = 512
CONTENT = {"a.txt": b"first", "b.txt": b"x" * 700, "é.txt": b"pax header", "d.txt": b"", "e.txt": b"last"}


def packed(content: dict[str, bytes] = CONTENT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


WHOLE = packed()
HEADERS = [at for at in range(0, len(WHOLE), BLOCK) if WHOLE[at + 257 : at + 262] == b"ustar"]
END = max(HEADERS) + 2 * BLOCK


def read(data: bytes, way: str, folder: Path) -> tuple[list[str], str, str]:
    """The members' names, the error and the warning of one reading."""
    (folder / "x.tar").write_bytes(gzip.compress(data, 1) if way == "gzip" else data)
    path = str(folder / "x.tar")
    pipe: Any = {
        "file": lambda: Pipe.tar(path),
        "gzip": lambda: Pipe.tar(path),
        "one way": lambda: Pipe.of([(path, OneWay(data))]).load_from_tar(),
        "decompress": lambda: Pipe.of([path]).open_files("rb").decompress().load_from_tar(),
    }[way]()
    names, error = [], ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for name, stream in pipe:
                names.append(name.removeprefix(f"{path}/"))
                everything([stream])
        except (tarfile.ReadError, EOFError) as refused:
            error = str(refused)
    return names, error, " ".join(str(w.message) for w in caught)


WAYS = ["file", "one way", "gzip", "decompress"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("damage", ["flipped", "zeroed"])
def test_a_damaged_header_is_an_error_that_names_the_file_and_the_place(way: str, damage: str, tmp_path: Path) -> None:
    assert read(WHOLE, way, tmp_path) == ([*CONTENT], "", "")
    for at in HEADERS:
        broken = bytearray(WHOLE)
        broken[at : at + BLOCK] = bytes(BLOCK) if damage == "zeroed" else bytes(b ^ 1 for b in broken[at : at + BLOCK])
        names, error, _ = read(bytes(broken), way, tmp_path)
        assert names == [*CONTENT][: len(names)], f"header at {at}"
        assert "x.tar" in error, f"header at {at}: {error}"
        # A record that stands before its member (a long name, say) is named by its own place or by the member's.
        assert f"byte {at}" in error or f"byte {max((h for h in HEADERS if h < at), default=0)}" in error, error


@pytest.mark.parametrize("way", WAYS)
def test_an_archive_cut_anywhere_is_an_error_or_a_warning_that_its_end_is_missing(way: str, tmp_path: Path) -> None:
    for cut in range(BLOCK, END, BLOCK // 2):
        names, error, warning = read(WHOLE[:cut], way, tmp_path)
        assert names == [*CONTENT][: len(names)], f"cut at {cut}"
        assert "x.tar" in error or ("x.tar" in warning and "no end-of-archive" in warning), f"cut at {cut}"
    assert read(WHOLE[:END], way, tmp_path)[:2] == ([*CONTENT], "")
    assert "no end-of-archive" in read(WHOLE[:END], way, tmp_path)[2]


@pytest.mark.parametrize("way", WAYS)
def test_what_follows_an_end_of_archive_is_not_left_out_without_a_word(way: str, tmp_path: Path) -> None:
    names, error, warning = read(WHOLE[: END + 2 * BLOCK] + packed({"more.txt": b"x"}), way, tmp_path)
    assert (names, error) == ([*CONTENT], "")
    assert "x.tar" in warning
    assert "after its end-of-archive" in warning


@pytest.mark.filterwarnings("ignore:Unable to extract files")
@pytest.mark.parametrize("damage", ["changed", "cut"])
@pytest.mark.parametrize("open_archive", [Pipe.tar, Pipe.shards])
def test_a_compressed_archive_whose_check_sum_differs_is_an_error(
    open_archive: Any, damage: str, tmp_path: Path
) -> None:
    data = gzip.compress(WHOLE, 0)  # stored as it is, so that only the check sum shows what was changed
    path = str(tmp_path / "x.tar.gz")
    Path(path).write_bytes(data)
    assert len(everything(open_archive(path))) == len(CONTENT)
    Path(path).write_bytes(data.replace(b"first", b"fi_st") if damage == "changed" else data[:-8])
    with pytest.raises(
        tarfile.ReadError, match=r"x\.tar\.gz, byte \d+: its gzip is .*, so what was read may be damaged"
    ):
        everything(open_archive(path))


def test_a_shard_says_it_too(tmp_path: Path) -> None:
    broken = bytearray(WHOLE)
    broken[HEADERS[1]] ^= 1
    (tmp_path / "s.tar").write_bytes(broken)
    with pytest.raises(tarfile.ReadError, match=rf"s\.tar, byte {HEADERS[1]}: .*on_error"):
        list(Pipe.shards(tmp_path / "s.tar"))
