"""Verbs for archives and for content: unpack, decompress, check, save."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.pipe.verbs.growing import grow

if TYPE_CHECKING:
    from headrace.ops.archives.decompress import CompressionType
    from headrace.pipe.graph import Pipe
    from headrace.sources.stream import StreamWrapper


class ArchiveVerbs:
    """What a Pipe can do with archives and with the content of files."""

    __slots__ = ()

    # --- archives ---------------------------------------------------------------------------------------------------

    def load_from_tar(self, mode: str = "r:*", length: int = -1) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each regular file of each tar archive as (archive/name, stream)."""
        from headrace.ops.archives.load_from_tar import LoadFromTar

        return grow(self, LoadFromTar(mode, length))

    def load_from_zip(self, length: int = -1) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file of each zip archive as (archive/name, stream)."""
        from headrace.ops.archives.load_from_zip import LoadFromZip

        return grow(self, LoadFromZip(length))

    def load_from_rar(self, *, length: int = -1) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file of each rar archive as (archive/name, stream)."""
        from headrace.ops.archives.load_from_rar import LoadFromRar

        return grow(self, LoadFromRar(length))

    def load_from_bz2(self, length: int = -1) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file decompressed, with `.bz2` taken off its path."""
        from headrace.ops.archives.decompress import LoadFromBz2

        return grow(self, LoadFromBz2(length))

    def load_from_xz(self, length: int = -1) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file decompressed, with `.xz` taken off its path."""
        from headrace.ops.archives.decompress import LoadFromXz

        return grow(self, LoadFromXz(length))

    def decompress(self, file_type: "str | CompressionType | None" = None) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file decompressed, by its name or by the given type (gzip, lzma, tar, zip, bz2)."""
        from headrace.ops.archives.decompress import Decompress

        return grow(self, Decompress(file_type))

    def extract(self, file_type: "str | CompressionType | None" = None) -> "Pipe[tuple[str, StreamWrapper]]":
        """The old name of `decompress`."""
        return self.decompress(file_type)

    def load_from_tfrecord(self, spec: Any = None, length: int = -1) -> "Pipe[dict[str, Any]]":
        """Each example of each TFRecord file as a dict of arrays; `spec` is {name: (shape, dtype)}."""
        from headrace.ops.archives.load_from_tfrecord import LoadFromTfrecord

        return grow(self, LoadFromTfrecord(spec, length))

    # --- names and groups -------------------------------------------------------------------------------------------

    def shard_expand(self) -> "Pipe[str]":
        """Names with ranges, `x-{000..009}`, as all the names they stand for."""
        from headrace.ops.files.list_files import ShardExpand

        return grow(self, ShardExpand())

    def webdataset(self) -> "Pipe[dict[str, Any]]":
        """Neighbouring (path, data) samples of one name as one dict by their endings."""
        from headrace.ops.archives.webdataset import WebDataset

        return grow(self, WebDataset())

    # --- content ----------------------------------------------------------------------------------------------------

    def check_hash(
        self, hash_dict: Mapping[str, str], hash_type: str = "sha256", rewind: bool = True
    ) -> "Pipe[tuple[str, Any]]":
        """Each (name, data) as it came, if its hash is `hash_dict[name]`; an error otherwise."""
        from headrace.ops.files.check_hash import CheckHash

        return grow(self, CheckHash(hash_dict, hash_type, rewind))

    def save_to_disk(
        self, mode: str = "w", filepath_fn: Callable[[Any], str] | None = None, *, folder: str | None = None
    ) -> "Pipe[str]":
        """Each (path, data) written to a file, whose path is handed on; with `folder`, never outside of it."""
        from headrace.ops.files.save_to_disk import SaveToDisk

        return grow(self, SaveToDisk(mode, filepath_fn, folder))
