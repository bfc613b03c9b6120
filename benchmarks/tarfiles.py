"""Tar shards as WebDataset defines them: a sample is two neighbours, `KEY.bin` (an image's bytes) and `KEY.num`."""

import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SIDE = 64
Decode = Callable[[bytes, bytes], Any]


def decode(content: bytes, label: bytes) -> tuple[npt.NDArray[np.uint8], int]:
    return np.frombuffer(bytearray(content), np.uint8).reshape(SIDE, SIDE, 3), int(label)


def write_shards(folder: Path, shards: int, samples: int) -> list[str]:
    """So many files, of so many samples each; the label counts the samples."""
    pixels = np.random.default_rng(8).integers(0, 256, (16, SIDE * SIDE * 3), dtype=np.uint8)
    paths = []
    for shard in range(shards):
        path = folder / f"shard-{shard:04}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
            for number in range(shard * samples, (shard + 1) * samples):
                add(file, f"{number:08}.bin", pixels[number % 16].tobytes())
                add(file, f"{number:08}.num", str(number).encode())
        paths.append(str(path))
    return paths


def pack(folder: Path, files: Sequence[str], shards: int) -> list[str]:
    """Files as samples `KEY.data` (the content) and `KEY.path`, in so many archives."""
    archives = []
    for shard in range(shards):
        archive = folder / f"shard-{shard:04}.tar"
        with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as file:
            for number in range(shard, len(files), shards):
                add(file, f"{number:08}.data", Path(files[number]).read_bytes())
                add(file, f"{number:08}.path", files[number].encode())
        archives.append(str(archive))
    return archives


def add(file: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    file.addfile(member, io.BytesIO(content))


def read(path: str) -> Iterator[tuple[bytes, bytes]]:
    """What people write who have no library for it: the standard library's tarfile, members in pairs."""
    with tarfile.open(path, "r|") as file:
        content = b""
        for member in file:
            stream = file.extractfile(member)
            if stream is None:
                raise ValueError(f"{path}: {member.name} is not a file")
            if member.name.endswith(".bin"):
                content = stream.read()
            else:
                yield content, stream.read()


class FromDict:
    """Decodes a sample that came as a dict of files, by ending, as bytes or as streams."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode

    def __call__(self, sample: dict[str, Any]) -> Any:
        content, label = (sample[end] if end in sample else sample[f".{end}"] for end in ("bin", "num"))
        return self.decode(_bytes(content), _bytes(label))


def _bytes(value: Any) -> bytes:
    return bytes(value.read()) if hasattr(value, "read") else bytes(value)
