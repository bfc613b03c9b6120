"""Load from tar: the files inside tar archives, compressed or not.

Members of a plain archive on a local disk are read when they are asked for, by their place in the file: in any order,
thread or process. A member of any other archive (compressed, remote, inside another one) is read into memory when its
turn comes, because going back to it later would mean reading all that is before it again.
"""

import io
import tarfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from headrace.errors import check_whole
from headrace.ops.archives.tar_bytes import Passing, PlainFile, check_mode, content, open_archive
from headrace.ops.files.per_file import PerFile, member_path, unpacking
from headrace.sources.limit import LARGEST
from headrace.sources.slice import FileSlice, open_slice
from headrace.sources.stream import StreamWrapper
from headrace.sources.tar import members


@dataclass(frozen=True, slots=True)
class LoadFromTar(PerFile[tuple[str, StreamWrapper]]):
    """Each regular file of each archive as `(archive/name, stream)`; `mode` is that of `tarfile.open`."""

    mode: str = "r:*"
    known: int = -1
    max_bytes: int = LARGEST

    def __post_init__(self) -> None:
        check_mode(self.mode)
        check_whole("max_bytes", self.max_bytes, 1)

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        with unpacking(sample, "tarfile", (tarfile.TarError, EOFError)) as (path, stream):
            for _, inner in entries(open_archive(stream, path, self.mode, self.max_bytes), stream):
                assert inner.name is not None
                yield inner.name, inner


def entries(archive: PlainFile | Passing, stream: StreamWrapper) -> Iterator[tuple[str, StreamWrapper]]:
    """The regular files of the archive in a stream: the name of each in the archive, and its stream."""
    for member in members(archive, 0, lambda remark: warnings.warn(f"{archive.path} {remark}", stacklevel=3)):
        name = member_path(archive.path, member.name)
        if isinstance(archive, PlainFile) and member.holes is None:
            place = archive.file, member.data, member.size
            part = io.BufferedReader(FileSlice(*place, stream.file_obj))
            yield member.name, StreamWrapper(part, stream, name, partial(open_slice, *place))
        else:
            yield member.name, StreamWrapper(io.BytesIO(content(archive, member, name)), name=name)
    archive.finish()
