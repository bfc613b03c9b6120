"""Tar archives by position: the samples that `Pipe.shards` finds in them as a stream, or an error that says why not."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.sources.bytes import DamagedFile

KINDS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def archive(path: Path, names: list[str], kind: int = tarfile.PAX_FORMAT) -> Path:
    """Members of these names; `name -> other` is a link, `name => other` a hard one, and `name/` a folder."""
    with tarfile.open(path, "w", format=kind) as made:
        for number, name in enumerate(names):
            data = f"{number} {name}".encode()
            info = tarfile.TarInfo(name.rstrip("/"))
            for arrow, link in ((" -> ", tarfile.SYMTYPE), (" => ", tarfile.LNKTYPE)):
                if arrow in name:
                    info.type, (info.name, info.linkname) = link, name.split(arrow)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            if info.type == tarfile.REGTYPE:
                info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return path


def samples(pipe: Pipe[Any]) -> Any:
    try:
        return list(Loader(pipe))
    except ValueError as error:
        return str(error)


NAMED: dict[str, tuple[list[str], list[tuple[str, ...]]]] = {
    "macOS": (["d/._1.jpg", "d/1.jpg", "d/._1.cls", "d/1.cls", "d/._2.jpg", "d/2.jpg"], [(".jpg", ".cls"), (".jpg",)]),
    "large letters": (["1.JPG", "1.cls", "2.jpg"], [(".jpg", ".cls"), (".jpg",)]),
    "what a shard says of itself": (["__meta__/x.json", "1.jpg"], [(".jpg",)]),
    "hidden": ([".gitignore", "1.jpg", "d/.hidden.txt", "1.cls"], [(".jpg", ".cls")]),
    "no ending": (["README", "1.jpg", "LICENSE", "1.cls"], [(".jpg", ".cls")]),
    "begins like a compressed file": (["BZ1.jpg", "BZh1.jpg", "BZh1.cls"], [(".jpg",), (".jpg", ".cls")]),
    "a first name like bzip2": (["BZh1.jpg", "BZh1.cls"], [(".jpg", ".cls")]),
    "letters of Windows": (["a\\1.jpg", "a\\1.cls"], [(".jpg", ".cls")]),
    "a line end behind the ending": (["é1.jpg\n", "é1.jpg\n\n"], [(".jpg\n", ".jpg\n\n")]),
}
"""Names of members, and the endings of each sample that they make."""


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("filled", [False, True])
def test_an_archive_that_ends_behind_the_long_name_of_a_member_is_cut_off(
    tmp_path: Path, kind: int, filled: bool
) -> None:
    path = archive(tmp_path / "a.tar", ["1.jpg", "l" * 200 + ".jpg"], kind)
    whole = path.read_bytes()
    long = tmp_path / "b.tar"
    # (A member is 1024 bytes, a header of another kind before it as well.)
    long.write_bytes(whole[: 1024 + 1024] + bytes(10240 if filled else 0))
    with pytest.raises(
        DamagedFile, match=r"byte 2048: (no header of a member stands here|.*in the middle of a header)"
    ):
        Pipe.stored(long).length()
    with pytest.raises(tarfile.ReadError):
        list(Pipe.shards(long))


def test_a_header_that_describes_the_archive_announces_no_member(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", pax_headers={"comment": "a commit"}):
        pass
    assert Pipe.stored(tmp_path / "a.tar").length() == 0


@pytest.mark.parametrize("what", NAMED)
def test_names_mean_the_same_by_position_as_in_a_stream(tmp_path: Path, what: str) -> None:
    names, endings = NAMED[what]
    path = archive(tmp_path / "a.tar", names)
    found = list(Loader(Pipe.stored(path)))
    assert [tuple(ending for ending in sample if ending != "__key__") for sample in found] == endings
    assert found == list(Loader(Pipe.shards(path)))


folders = st.sampled_from(["", "./", "d/", "a.b/", ".git/", "__MACOSX/", "__meta__/", "d/__x__/", "é/", "long/" * 30])
stems = st.sampled_from(["1", "1", "2", "._1", ".hidden", "__key__", "ü", "a b", "A", "a\\1", ""])
endings = st.sampled_from(
    ["", ".", ".jpg", ".JPG", ".cls", ".Seg.PNG", ".tar.gz", "..txt", ".é", ".É", "/", " -> 1.jpg", " => 1.jpg"]
)
members = (
    st.tuples(folders, stems, endings).map("".join).filter(lambda name: name.strip("./ ") != "" and name[0] != " ")
)


@given(st.lists(members, min_size=1, max_size=12), st.sampled_from(KINDS))
def test_any_archive_gives_the_samples_of_the_stream(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], kind: int
) -> None:
    path = archive(tmp_path_factory.mktemp("tar") / "a.tar", names, kind)
    assert samples(Pipe.stored(path)) == samples(Pipe.shards(path))


@pytest.mark.parametrize(
    "options", [["--format=gnu"], *(["--format=posix", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))]
)
def test_a_sparse_member_is_refused_with_what_to_do(tmp_path: Path, options: list[str]) -> None:
    tar = shutil.which("tar")
    if tar is None or b"GNU tar" not in subprocess.run([tar, "--version"], capture_output=True, check=True).stdout:
        pytest.skip("no GNU tar is installed")
    (tmp_path / "t.bin").write_bytes(b"plain")
    with (tmp_path / "s.bin").open("wb") as holes:
        for number in range(9):  # (more than a header of GNU's own holds)
            holes.seek(number << 20)
            holes.write(b"piece")
    made = [tar, "-S", *options, "-cf", "a.tar", "t.bin", "s.bin"]
    subprocess.run(made, cwd=tmp_path, check=True)
    with pytest.raises(DamagedFile, match=r"a\.tar .* byte \d+ .* sparse .* without -S .* Pipe\.shards"):
        Pipe.stored(tmp_path / "a.tar").length()
    plain, sparse = Loader(Pipe.shards(tmp_path / "a.tar"))
    assert (plain[".bin"], sparse[".bin"]) == (b"plain", (tmp_path / "s.bin").read_bytes())


def test_a_hard_link_that_tells_the_size_of_its_file_hides_no_member(tmp_path: Path) -> None:
    """Some programs write it, and no data behind it."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as made:
        for number in range(3):
            link = tarfile.TarInfo(f"{number}.link")
            link.type, link.linkname, link.size = tarfile.LNKTYPE, "x", 1024
            made.addfile(link)
            file = tarfile.TarInfo(f"{number}.txt")
            file.size = 3
            made.addfile(file, io.BytesIO(b"abc"))
    assert list(Loader(Pipe.stored(path))) == [{"__key__": str(n), ".txt": b"abc"} for n in range(3)]
    assert list(Loader(Pipe.shards(path))) == list(Loader(Pipe.stored(path)))
