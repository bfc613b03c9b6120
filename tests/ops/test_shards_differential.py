"""`Pipe.shards` against the reader of the webdataset package, over archives of every make, those of macOS too."""

import gzip
import io
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headrace.pipe.graph import Pipe
from tests.depth import depth

wds = pytest.importorskip("webdataset.tariterators", reason="pip install -e '.[dev]'")

KEYS = [
    "0001",
    "0002",
    "./0003",
    "train/a",
    "train.v2/b",
    "deep/er/c",
    "é",
    "with space",
    "dir/.hidden",
    "/abs/d",
    "__m",
]
ENDINGS = ["jpg", "JPG", "cls", "seg.png", "Seg.PNG", "txt", "", "tar.gz", "with space", "__key", "É"]
OTHERS = [".DS_Store", "._.DS_Store", "README", "dir/README", "__meta__", "__meta__/x.json", "__a__.json", "dir/__b__",
          "..jpg", "a/._.", "x/..y/z.cls", "__c__d__/e.txt"]  # fmt: skip


def entry(archive: tarfile.TarFile, name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    info.linkname = "0001.jpg"
    archive.addfile(info, io.BytesIO(data))


def make(draw: random.Random) -> bytes:
    """An archive such as people make: by macOS's tar, by GNU's, by a program."""
    out = io.BytesIO()
    style = draw.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    macos = draw.random() < 0.4
    with tarfile.open(fileobj=out, mode="w", format=style) as archive:
        for key in draw.sample(KEYS, draw.randint(1, 5)):
            for ending in draw.sample(ENDINGS, draw.randint(1, 3)):
                folder, _, name = f"{key}.{ending}".rpartition("/")
                folder = f"{folder}/" if folder else "/" * key.startswith("/")
                if macos:  # what the system knows of a file stands beside it
                    entry(archive, f"{folder}._{name}", b"\0\5\x16\7")
                entry(archive, folder + name, draw.randbytes(draw.choice([0, 3, 600])))
                if draw.random() < 0.2:
                    entry(archive, draw.choice(OTHERS), b"other")
                if draw.random() < 0.1:
                    entry(archive, "folder.d", b"", draw.choice([tarfile.DIRTYPE, tarfile.SYMTYPE]))
    return gzip.compress(out.getvalue()) if draw.random() < 0.2 else out.getvalue()


def seen(name: str) -> bool:
    """Webdataset leaves out `._a.jpg`, but takes `train/._a.jpg` for a file of a sample `train/`: we do not."""
    return not name.rpartition("/")[2].startswith(".")


def theirs(paths: list[str]) -> Any:
    def opened() -> Any:
        for path in paths:
            with open(path, "rb") as file:
                yield {"url": path, "stream": file}

    try:
        samples = list(wds.group_by_keys(wds.tar_file_expander(opened(), select_files=seen)))
    except ValueError:
        return "two files of one sample have one ending"
    return [{k if k == "__key__" else f".{k}": v for k, v in sample.items() if k != "__url__"} for sample in samples]


def ours(paths: list[str]) -> Any:
    try:
        return list(Pipe.shards(paths))
    except ValueError as error:
        return "two files of one sample have one ending" if "two files that end in" in str(error) else str(error)


@pytest.mark.timeout(depth(60, 600))
def test_shards_are_what_webdataset_reads(tmp_path: Path) -> None:
    for seed in range(depth(30, 500)):
        paths = []
        draw = random.Random(seed)
        for number in range(draw.randint(1, 2)):
            (tmp_path / f"{number}.tar").write_bytes(make(draw))
            paths.append(str(tmp_path / f"{number}.tar"))
        assert ours(paths) == theirs(paths), f"seed {seed}"


def test_a_member_that_leads_out_of_the_archive_is_refused_here_and_not_there(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        entry(archive, "../0001.jpg", b"x")
    assert theirs([str(tmp_path / "x.tar")])
    assert "outside of the archive's folder" in ours([str(tmp_path / "x.tar")])
