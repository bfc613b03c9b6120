"""Load from zip: the files inside zip archives."""

import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import check_whole
from headrace.ops.archives.zip_members import open_member
from headrace.ops.files.per_file import PerFile, archive_members, unpacking
from headrace.sources.limit import LARGEST, PIECE, check_limit, limit_of
from headrace.sources.stream import StreamWrapper


@dataclass(frozen=True, slots=True)
class LoadFromZip(PerFile[tuple[str, StreamWrapper]]):
    """Each file of each archive as `(archive/name, stream)`; members may be read in any order and thread."""

    known: int = -1
    max_bytes: int = LARGEST

    def __post_init__(self) -> None:
        check_whole("max_bytes", self.max_bytes, 1)

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        with unpacking(sample, "zipfile", (zipfile.BadZipFile, EOFError)) as (path, stream):
            archive = stream
            if not isinstance(stream.file_obj, zipfile.ZipFile):
                archive = StreamWrapper(zipfile.ZipFile(_seekable(stream)), stream, path)

            def opened(info: zipfile.ZipInfo, name: str) -> Any:
                return open_member(archive.file_obj, info, name, self.max_bytes)

            yield from archive_members(
                archive, (info for info in archive.infolist() if not info.is_dir()), path, opened
            )


def _seekable(stream: StreamWrapper) -> Any:
    """The file itself, or a copy on disk if it cannot seek: the table of a zip file is at its end."""
    file = stream.file_obj
    if hasattr(file, "seekable") and file.seekable():
        return file
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the archive owns it
    try:
        while piece := file.read(PIECE):
            copy.write(piece)
            check_limit(copy.tell(), limit_of(file), str(stream.name))
    except BaseException:
        copy.close()
        raise
    copy.seek(0)
    stream.replace_file(copy)
    file.close()
    return copy
