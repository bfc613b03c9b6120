"""Read from stream: the content of files, whole or in pieces."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.ops.files.per_file import PerFile
from headrace.sources.stream import StreamWrapper


@dataclass(frozen=True, slots=True)
class ReadFromStream(PerFile[tuple[str, Any]]):
    """Each file as `(path, content)`, in pieces of `chunk` bytes if given."""

    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None and self.chunk <= 0:
            raise BadOption(f"read_from_stream(chunk=) needs a positive number of bytes, not {self.chunk!r}")

    def read(self, path: str, stream: StreamWrapper) -> Iterator[tuple[str, Any]]:
        if self.chunk is None:
            # (An empty file gives no sample.)
            if data := stream.read():
                yield path, data
            return
        while data := stream.read(self.chunk):
            yield path, data
