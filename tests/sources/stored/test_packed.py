"""Compressed members and LitData chunks: the samples of the plain files, any of them by its position."""

import bz2
import gzip
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.sources.stored import packed, source
from headrace.sources.stored.form import DamagedFile
from tests.depth import depth
from tests.sources.stored import writers

zstandard = pytest.importorskip("zstandard", reason="not installed")

ROWS = [{"n": i, "text": "é" * (i % 50)} for i in range(300)]
TEXT = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def zstd(data: bytes) -> bytes:
    return bytes(zstandard.ZstdCompressor().compress(data))


def unsized(data: bytes) -> bytes:
    """A frame that does not say how long it is unpacked, with a check sum."""
    return bytes(zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(data))


def in_members(pack: Callable[[bytes], bytes], count: int) -> bytes:
    """Cut anywhere, also inside lines; between members of zstd stands a note."""
    size = -(-len(TEXT) // count)
    note = b"" if pack in (gzip.compress, bz2.compress) else struct.pack("<II", 0x184D2A53, 5) + b"hello"
    return note.join(pack(TEXT[at : at + size]) for at in range(0, len(TEXT), size))


PACKS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, "gz"), "bzip2": (bz2.compress, "bz2"),
    "zstd": (zstd, "zst"), "unsized zstd": (unsized, "zst"),
}  # fmt: skip


@pytest.mark.parametrize("members", [1, 7, 40])
@pytest.mark.parametrize("kind", list(PACKS))
def test_lines_of_a_compressed_file_come_by_position(tmp_path: Path, kind: str, members: int) -> None:
    pack, ending = PACKS[kind]
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(in_members(pack, members))
    pipe = Pipe.stored(path)
    assert list(Loader(pipe)) == ROWS
    shuffled = list(Loader(pipe.shuffle()))
    assert shuffled != ROWS
    assert sorted(row["n"] for row in shuffled) == list(range(300))
    assert list(Loader(Pipe.stored(path), workers=2, kind="thread")) == ROWS


def test_the_members_of_a_file_are_units_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "UNIT", 1)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(in_members(gzip.compress, 40))
    pipe = Pipe.stored(path).shuffle(parts=6)
    assert pipe.inputs[0].op.units().count == 40  # type: ignore[attr-defined]
    packed._members.__init__()  # type: ignore[misc]
    with Loader(pipe.batch(10)) as loader:
        assert sorted(row["n"] for batch in loader for row in batch) == list(range(300))
        assert loader.stats().reads.bytes <= 1.3 * path.stat().st_size


def test_a_member_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "LARGEST", 1000)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(TEXT))
    with pytest.raises(DamagedFile, match=r"compressed in one piece of .* smaller members"):
        list(Loader(Pipe.stored(tmp_path / "a.jsonl.gz")))


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_mutated_compressed_file_gives_an_error_or_the_right_data(tmp_path: Path, kind: str) -> None:
    pack, ending = PACKS[kind]
    target, chance = tmp_path / f"a.jsonl.{ending}", random.Random(3)
    sums = pack if kind == "gzip" else unsized  # with check sums, as the programs write them
    whole = in_members(sums, 5)
    for _ in range(depth(25, 500)):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        target.write_bytes(data if chance.random() < 0.7 else data[: chance.randrange(len(data))])
        for left in tmp_path.glob("*.index"):
            left.unlink()
        try:
            found = list(Loader(Pipe.stored(target)))
        except (DamagedFile, ValueError):
            continue
        # A change in a note, or in a field that means nothing, or a cut between two members.
        assert found == ROWS[: len(found)] or found[:-1] == ROWS[: len(found) - 1]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_compressed_shards_of_mds_are_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    rows = [{"x": i.to_bytes(8, "little"), "s": b"t" * i} for i in range(60)]
    made = writers.mds(tmp_path / "m", {"x": ("int", 8), "s": ("str", None)}, [rows[:25], rows[25:]])
    want = list(Loader(Pipe.stored(made)))
    ending = "gz" if pack is gzip.compress else "zstd"
    index = json.loads((made / "index.json").read_text())
    for shard in index["shards"]:
        plain = made / shard["raw_data"]["basename"]
        (made / f"{plain.name}.{ending}").write_bytes(pack(plain.read_bytes()))
        plain.unlink()
        shard["zip_data"] = {"basename": f"{plain.name}.{ending}"}
    (made / "index.json").write_text(json.dumps(index))
    assert list(Loader(Pipe.stored(made))) == want


# --- LitData ----------------------------------------------------------------------------------------------------------

LEAF = {"type": None, "context": None, "children_spec": []}
FORMATS = ["int", "no_header_numpy:9", "tensor", "str", "bool", "float", "numpy"]
TREE = {
    "type": "builtins.dict", "context": json.dumps(["n", "more"]),
    "children_spec": [LEAF, {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF] * 6}],
}  # fmt: skip


def sample(i: int) -> Any:
    square = np.arange(6, dtype=np.int64).reshape(2, 3) * i
    return {
        "n": i,
        "more": (np.arange(i % 4, dtype=np.float32), square, f"s{i}", i % 2 == 0, i / 2, square.astype("i2")),
    }


def leaves(made: Any) -> list[bytes]:
    row, square, text, flag, number, short = made["more"]
    return [
        struct.pack("<q", made["n"]), row.tobytes(), struct.pack(">IIII", 17, 2, 2, 3) + square.tobytes(),
        text.encode(), b"\1" if flag else b"\0", struct.pack("<d", number),
        struct.pack("<IIII", 1, 2, 2, 3) + short.tobytes(),
    ]  # fmt: skip


def litdata(folder: Path, formats: list[str], tree: Any, chunks: list[list[list[bytes]]], pack: Any = None) -> Path:
    folder.mkdir()
    listed = []
    for number, samples in enumerate(chunks):
        items = [b"".join(struct.pack("<I", len(leaf)) for leaf in s) + b"".join(s) for s in samples]
        first = 4 + 4 * (len(items) + 1)
        data = struct.pack("<I", len(items)) + np.cumsum([first, *map(len, items)]).astype("<u4").tobytes()
        name = f"chunk-0-{number}{'.zstd' if pack else ''}.bin"
        (folder / name).write_bytes((pack or bytes)(data + b"".join(items)))
        listed.append({"filename": name, "chunk_size": len(items), "chunk_bytes": 0, "dim": None})
    config = {"data_format": formats, "data_spec": json.dumps([1, tree]), "item_loader": "PyTreeLoader"}
    (folder / "index.json").write_text(json.dumps({"chunks": listed, "config": config}))
    return folder


def shown(made: Any) -> str:
    return repr(made) + "".join(str(x.dtype) for x in made["more"] if isinstance(x, np.ndarray))


@pytest.mark.parametrize("pack", [None, zstd])
def test_chunks_of_litdata_are_read(tmp_path: Path, pack: Any) -> None:
    want = [sample(i) for i in range(40)]
    made = litdata(
        tmp_path / "l", FORMATS, TREE, [[leaves(s) for s in want[:25]], [], [leaves(s) for s in want[25:]]], pack
    )
    assert [shown(s) for s in Loader(Pipe.stored(made))] == [shown(s) for s in want]
    assert sorted(s["n"] for s in Loader(Pipe.stored(made).shuffle())) == list(range(40))


def test_pickles_and_unknown_leaves_of_litdata_are_refused(tmp_path: Path) -> None:
    import pickle

    made = litdata(tmp_path / "l", ["pickle"], LEAF, [[[pickle.dumps({1, 2})]]])
    with pytest.raises(BadOption, match="trust=True"):
        list(Loader(Pipe.stored(made)))
    assert list(Loader(Pipe.stored(made, trust=True))) == [{1, 2}]
    made = litdata(tmp_path / "m", ["mesh"], LEAF, [[[b""]]])
    with pytest.raises(BadOption, match="'mesh' cannot be read"):
        list(Loader(Pipe.stored(made)))


def test_mutated_chunks_of_litdata_give_an_error_or_the_right_data(tmp_path: Path) -> None:
    want = [sample(i) for i in range(40)]
    made = litdata(tmp_path / "l", FORMATS, TREE, [[leaves(s) for s in want]])
    target, chance = made / "chunk-0-0.bin", random.Random(3)
    whole = target.read_bytes()
    for _ in range(depth(25, 500)):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        target.write_bytes(data if chance.random() < 0.7 else data[: chance.randrange(len(data))])
        try:
            found = [shown(s) for s in Loader(Pipe.stored(made))]
        except (DamagedFile, ValueError, BadOption, UnicodeError, TypeError, IndexError):
            continue
        if len(found) == len(want):
            assert sum(a != shown(b) for a, b in zip(found, want, strict=True)) <= 1
