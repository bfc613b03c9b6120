"""Load from rar: the files inside rar archives (extra `rar`, and the `unrar` program for compressed members)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import check_whole
from headrace.ops.files.per_file import PerFile, archive_members, unpacking
from headrace.sources.extra import import_extra, require
from headrace.sources.limit import LARGEST
from headrace.sources.raw import RawFile
from headrace.sources.stream import StreamWrapper
from headrace.sources.unpack import Unpacked


@dataclass(frozen=True, slots=True)
class LoadFromRar(PerFile[tuple[str, StreamWrapper]]):
    """Each file of each archive as `(archive/name, stream)`."""

    known: int = -1
    max_bytes: int = LARGEST

    def __post_init__(self) -> None:
        require("rar", "rarfile")
        check_whole("max_bytes", self.max_bytes, 1)

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        rarfile = import_extra("rar", "rarfile")
        with unpacking(sample, "rarfile", (rarfile.Error,)) as (path, stream):
            if isinstance(getattr(stream.file_obj, "raw", None), RarMember):
                raise ValueError(f"Nested RAR archive is not supported by load_from_rar: {path}")
            archive = StreamWrapper(rarfile.RarFile(stream.file_obj), stream, path)

            def opened(info: Any, name: str) -> Unpacked:
                return Unpacked(RarMember(archive.open(info), name), name, self.max_bytes)

            yield from archive_members(archive, (info for info in archive.infolist() if info.is_file()), path, opened)


class RarMember(RawFile):
    """A member of a rar archive. It is asked by `read`, which finds its place in the archive; `readinto` does not."""

    def __init__(self, member: Any, path: str) -> None:
        super().__init__(path)
        self._member = member

    def fetch(self, wanted: int) -> bytes:
        if self._member.tell() != self.position:
            self._member.seek(self.position)
        return self._member.read(wanted)  # type: ignore[no-any-return]

    def close(self) -> None:
        if not self.closed:
            self._member.close()
        super().close()
