"""Load from rar: the files inside rar archives (extra `rar`, and the `unrar` program for compressed members)."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.ops.files.per_file import PerFile, archive_members, unpacking
from headrace.sources.extra import import_extra, require
from headrace.sources.stream import StreamWrapper


@dataclass(frozen=True, slots=True)
class LoadFromRar(PerFile[tuple[str, StreamWrapper]]):
    """Each file of each archive as `(archive/name, stream)`."""

    known: int = -1

    def __post_init__(self) -> None:
        require("rar", "rarfile")

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        rarfile = import_extra("rar", "rarfile")
        with unpacking(sample, "rarfile", (rarfile.Error,)) as (path, stream):
            if isinstance(stream.file_obj, rarfile.RarExtFile):
                raise ValueError(f"Nested RAR archive is not supported by load_from_rar: {path}")
            archive = StreamWrapper(rarfile.RarFile(stream.file_obj), stream, path)
            yield from archive_members(archive, (info for info in archive.infolist() if info.is_file()), path)
