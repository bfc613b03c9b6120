"""Load from tar: the files inside tar archives, compressed or not.

Members of a plain archive on a local disk are read when they are asked for, by their place in the file: in any order,
thread or process. A member of any other archive (compressed, remote, inside another one) is read into memory when its
turn comes, because going back to it later would mean reading all that is before it again.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from headrace.ops.files.per_file import PerFile, member_path, unpacking
from headrace.sources.slice import FileSlice, open_slice
from headrace.sources.stream import StreamWrapper
from headrace.sources.tar import content, headers, open_tar


@dataclass(frozen=True, slots=True)
class LoadFromTar(PerFile[tuple[str, StreamWrapper]]):
    """Each regular file of each archive as `(archive/name, stream)`; `mode` is that of `tarfile.open`."""

    mode: str = "r:*"
    known: int = -1

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        with unpacking(sample, "tarfile", (tarfile.TarError, EOFError)) as (path, stream):
            for _, inner in entries(path, stream, self.mode):
                assert inner.name is not None
                yield inner.name, inner


def entries(path: str, stream: StreamWrapper, mode: str = "r:*") -> Iterator[tuple[str, StreamWrapper]]:
    """The regular files of one archive: the name of each in the archive, and its stream."""
    plain = _plain_file(stream)
    archive, ours = _opened(stream, mode, path)
    try:
        for info in headers(archive, path):
            if not info.isfile():
                continue
            name = member_path(path, info.name)
            if plain is not None and info.sparse is None:
                part = FileSlice(plain, info.offset_data, info.size, stream.file_obj)
                again = partial(open_slice, plain, info.offset_data, info.size)
                inner = StreamWrapper(io.BufferedReader(part), stream, name, again)
            else:
                inner = StreamWrapper(io.BytesIO(content(archive, info, path)), name=name)
            yield info.name, inner
    finally:
        if ours:
            archive.close()


def _opened(stream: StreamWrapper, mode: str, path: str) -> tuple[tarfile.TarFile, bool]:
    """The archive in a stream, and whether the caller has to close it."""
    file = stream.file_obj
    if isinstance(file, tarfile.TarFile):
        return file, False
    # (A sequential file can seek, but each jump would be another request.)
    if getattr(file, "sequential", False) or not (hasattr(file, "seekable") and file.seekable()):
        mode = mode.replace(":", "|")
    return open_tar(file, mode, path), True


def _plain_file(stream: StreamWrapper) -> str | None:
    """The path of the archive if it is a local file that is not compressed; else None."""
    file = stream.file_obj
    if not isinstance(file, io.BufferedReader) or not isinstance(file.raw, io.FileIO) or not isinstance(file.name, str):
        return None
    magic = os.pread(file.fileno(), 265, file.tell())[257:262]
    return os.path.abspath(file.name) if magic == b"ustar" and file.tell() == 0 else None
