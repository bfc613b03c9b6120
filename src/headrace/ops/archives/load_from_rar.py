"""Load from rar: the files inside rar archives (extra `rar`, and the `unrar` program for compressed members)."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.ops.files.per_file import PerFile, member, pathname_stream
from headrace.sources.extra import demand, need
from headrace.sources.stream import StreamWrapper


@dataclass(frozen=True, slots=True)
class LoadFromRar(PerFile[tuple[str, StreamWrapper]]):
    """Each file of each archive as `(archive/name, stream)`."""

    known: int = -1

    def __post_init__(self) -> None:
        demand("rar", "rarfile")

    def spread(self, sample: object) -> Iterator[tuple[str, StreamWrapper]]:
        path, stream = pathname_stream(sample)
        rarfile = need("rar", "rarfile")
        archive = stream
        try:
            if isinstance(stream.file_obj, rarfile.RarExtFile):
                raise ValueError(f"Nested RAR archive is not supported by load_from_rar: {path}")
            archive = StreamWrapper(rarfile.RarFile(stream.file_obj), stream, path)
            for info in archive.infolist():
                if info.is_file():
                    name = member(path, info.filename)
                    yield name, StreamWrapper(archive.open(info), archive, name)
        except rarfile.Error as error:
            warnings.warn(
                f"Unable to extract files from corrupted rarfile stream {path} due to: {error}, abort!", stacklevel=2
            )
            raise
        finally:
            archive.autoclose()
            stream.autoclose()

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.known if self.known >= 0 else None
