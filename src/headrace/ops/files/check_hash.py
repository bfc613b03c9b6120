"""Check hash: refuse content whose hash is not the expected one."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.ops.files.per_file import EachFile
from headrace.sources.bytes import local_stream
from headrace.sources.stream import StreamWrapper, memory_file

KINDS = ("sha256", "md5")
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CheckHash(EachFile[tuple[str, Any]]):
    """`(name, data)` as it came, if the hash of the data is `hash_dict[name]`; data is bytes, text or a stream."""

    hash_dict: Mapping[str, str]
    hash_type: str = "sha256"
    rewind: bool = True

    def __post_init__(self) -> None:
        check_kind(self.hash_type)

    def apply(self, sample: tuple[str, Any]) -> tuple[str, Any]:
        name, data = sample
        try:
            if name not in self.hash_dict:
                raise RuntimeError(f"Unspecified hash for file {name}")
            digest = hashlib.new(self.hash_type)
            if isinstance(data, bytes | bytearray | memoryview | str):
                digest.update(_raw(data))
            else:
                data = self._stream(data, digest)
            compare(name, digest.hexdigest(), self.hash_dict[name])
        except BaseException:
            StreamWrapper.close_streams(data)
            raise
        return name, data

    def _stream(self, stream: StreamWrapper, digest: "hashlib._Hash") -> Any:
        """Hash a stream, and return it at its start again; of one that cannot seek, a copy in memory."""
        if not self.rewind or (hasattr(stream, "seekable") and stream.seekable()):
            while part := stream.read(CHUNK):
                digest.update(_raw(part))
            if self.rewind:
                stream.seek(0)
            return stream
        content = stream.read()
        digest.update(_raw(content))
        stream.close()
        return StreamWrapper(memory_file(content), name=getattr(stream, "name", None))


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise BadOption(f"Invalid hash_type requested, should be one of {list(KINDS)}")


def compare(name: str, computed: str, expected: str) -> None:
    if computed != expected:
        raise RuntimeError(
            f"The computed hash {computed} of {name} does not match the expected hash {expected}. "
            f"Delete the file manually and retry."
        )


def file_hash(path: str, kind: str) -> str:
    """The hash of a file on disk."""
    with local_stream(path) as file:
        return hashlib.file_digest(file, kind).hexdigest()


def _raw(data: object) -> Any:
    return data.encode() if isinstance(data, str) else data
