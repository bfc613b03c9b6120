"""Files of every stored format, made by hand from their layouts or by the standard library."""

import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from headrace.sources.crc32c import stored_crc


def jsonl(path: Path, samples: list[Any], blank: bytes = b"") -> Path:
    path.write_bytes(b"".join(json.dumps(s).encode() + b"\n" + blank for s in samples))
    return path


def tar(path: Path, samples: list[dict[str, bytes]], kind: int = tarfile.PAX_FORMAT, long: bool = False) -> Path:
    with tarfile.open(path, "w", format=kind) as archive:
        for number, sample in enumerate(samples):
            for ending, data in sample.items():
                info = tarfile.TarInfo(f"{'deep/' * 40 if long else 'd/'}{number:04}{ending}")
                info.size = len(data)
                info.mtime = 1700000000.25  # PAX keeps the fraction in a header of its own
                archive.addfile(info, io.BytesIO(data))
    return path


def tfrecord(path: Path, records: list[bytes]) -> Path:
    def framed(data: bytes) -> bytes:
        size = struct.pack("<Q", len(data))
        return size + stored_crc(size) + data + stored_crc(data)

    path.write_bytes(b"".join(map(framed, records)))
    return path


def mds(folder: Path, columns: dict[str, tuple[str, int | None]], shards: list[list[dict[str, bytes]]]) -> Path:
    """`columns` by name: encoding, and bytes where every value has as many."""
    folder.mkdir()
    names = sorted(columns)
    said = {
        "column_names": names,
        "column_encodings": [columns[n][0] for n in names],
        "column_sizes": [columns[n][1] for n in names],
        "version": 2,
    }
    listed = []
    for number, samples in enumerate(shards):
        head = json.dumps(said, sort_keys=True).encode()
        packed = [
            b"".join(struct.pack("<I", len(s[n])) for n in names if columns[n][1] is None)
            + b"".join(s[n] for n in names)
            for s in samples
        ]
        first = 4 + 4 * (len(samples) + 1) + len(head)
        offsets = np.cumsum([first, *map(len, packed)]).astype("<u4")
        name = f"shard.{number:05}.mds"
        (folder / name).write_bytes(struct.pack("<I", len(samples)) + offsets.tobytes() + head + b"".join(packed))
        listed.append({"samples": len(samples), "raw_data": {"basename": name}, "zip_data": None, **said})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": listed}))
    return folder


def megatron(path: Path, sequences: list[np.ndarray[Any, Any]], code: int) -> Path:
    path.with_suffix(".bin").write_bytes(b"".join(s.tobytes() for s in sequences))
    sizes = np.array([len(s) for s in sequences], "<i4")
    offsets = np.concatenate([[0], np.cumsum([s.nbytes for s in sequences])])[: len(sequences)].astype("<i8")
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sequences), len(sequences) + 1)
    documents = np.arange(len(sequences) + 1, dtype="<i8")
    path.with_suffix(".idx").write_bytes(head + sizes.tobytes() + offsets.tobytes() + documents.tobytes())
    return path.with_suffix(".bin")
