"""Load from zip: the files inside zip archives."""

import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from shutil import copyfileobj
from typing import Any

from headrace.ops.files.per_file import PerFile, member, pathname_stream
from headrace.sources.stream import StreamWrapper


@dataclass(frozen=True, slots=True)
class LoadFromZip(PerFile[tuple[str, StreamWrapper]]):
    """Each file of each archive as `(archive/name, stream)`; members may be read in any order and thread."""

    known: int = -1

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        path, stream = pathname_stream(sample)
        archive = stream
        try:
            if not isinstance(stream.file_obj, zipfile.ZipFile):
                archive = StreamWrapper(zipfile.ZipFile(_seekable(stream)), stream, path)
            for info in archive.infolist():
                if not info.is_dir():
                    name = member(path, info.filename)
                    yield name, StreamWrapper(archive.open(info), archive, name)
        except (zipfile.BadZipFile, EOFError) as error:
            warnings.warn(
                f"Unable to extract files from corrupted zipfile stream {path} due to: {error}, abort!", stacklevel=2
            )
            raise
        finally:
            archive.autoclose()
            stream.autoclose()

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.known if self.known >= 0 else None


def _seekable(stream: StreamWrapper) -> Any:
    """The file itself, or a copy on disk if it can only be read from front to back: a zip's table is at its end."""
    file = stream.file_obj
    if hasattr(file, "seekable") and file.seekable():
        return file
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the archive owns it
    copyfileobj(file, copy)
    copy.seek(0)
    stream.become(copy)
    file.close()
    return copy
