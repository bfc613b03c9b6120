"""Decompress: the content of compressed files, by the type that is given or that the file name tells."""

import enum
import os
import zipfile
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.errors import check_whole
from headrace.ops.archives.tar_object import open_tar
from headrace.ops.files.per_file import EachFile, path_and_binary_stream, unpacking
from headrace.sources.limit import LARGEST
from headrace.sources.stream import StreamWrapper
from headrace.sources.unpack import BZIP2, GZIP, XZ, DamagedContent, unpacked


class CompressionType(enum.Enum):
    """The types that `decompress` knows."""

    GZIP = "gzip"
    LZMA = "lzma"
    TAR = "tar"
    ZIP = "zip"
    BZIP2 = "bz2"


_BY_SUFFIX = (
    ((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"), CompressionType.TAR),
    ((".xz", ".lzma"), CompressionType.LZMA),
    ((".gz", ".gzip"), CompressionType.GZIP),
    ((".zip",), CompressionType.ZIP),
    ((".bz2",), CompressionType.BZIP2),
)
_KINDS = {
    CompressionType.GZIP: GZIP,
    CompressionType.LZMA: XZ,
    CompressionType.BZIP2: BZIP2,
}


def _opened(kind: CompressionType, file: Any, path: str, limit: int) -> Any:
    if kind is CompressionType.ZIP:
        return zipfile.ZipFile(file)
    return open_tar(file, path, limit) if kind is CompressionType.TAR else unpacked(file, _KINDS[kind], path, limit)


@dataclass(frozen=True, slots=True)
class Decompress(EachFile[tuple[str, StreamWrapper]]):
    """`(path, stream)` with the stream decompressed; of a tar or zip file it holds the TarFile or ZipFile."""

    file_type: str | CompressionType | None = None
    max_bytes: int = LARGEST

    def __post_init__(self) -> None:
        if isinstance(self.file_type, str):
            object.__setattr__(self, "file_type", CompressionType(self.file_type.lower()))
        check_whole("max_bytes", self.max_bytes, 1)

    def apply(self, sample: object) -> tuple[str, StreamWrapper]:
        path, stream = path_and_binary_stream(sample)
        try:
            kind = CompressionType(self.file_type) if self.file_type else by_name(path)
            return path, StreamWrapper(_opened(kind, stream.file_obj, path, self.max_bytes), stream, path)
        finally:
            stream.autoclose()


@dataclass(frozen=True, slots=True)
class LoadFromBz2(EachFile[tuple[str, StreamWrapper]]):
    """`(path, stream)` with the stream decompressed and the suffix taken off the path."""

    known: int = -1
    max_bytes: int = LARGEST
    suffix: ClassVar[str] = ".bz2"
    kind: ClassVar[CompressionType] = CompressionType.BZIP2
    called: ClassVar[str] = "bzip2"

    def __post_init__(self) -> None:
        check_whole("max_bytes", self.max_bytes, 1)

    def apply(self, sample: object) -> tuple[str, StreamWrapper]:
        with unpacking(sample, self.called, (DamagedContent,)) as (path, stream):
            name = path.removesuffix(self.suffix)
            inner = StreamWrapper(_opened(self.kind, stream.file_obj, path, self.max_bytes), stream, name)
            try:
                inner.peek(1)  # a file of another type is an error here, not later, where it is first read
            except DamagedContent:
                inner.close()
                raise
            return name, inner


class LoadFromXz(LoadFromBz2):
    """The same for `.xz`."""

    __slots__ = ()
    suffix = ".xz"
    kind = CompressionType.LZMA
    called = "xz/lzma"


def by_name(path: str) -> CompressionType:
    """The type that the end of a file name tells."""
    name = os.path.basename(path).lower()
    for suffixes, kind in _BY_SUFFIX:
        if name.endswith(suffixes):
            return kind
    extension = os.path.splitext(name)[1]
    raise RuntimeError(
        f"File at {path} has file extension {extension}, which does not match what are supported by "
        f"ExtractorIterDataPipe. Give file_type=, one of {', '.join(kind.value for kind in CompressionType)}."
    )
