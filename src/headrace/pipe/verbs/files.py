"""Verbs for files: pipes that start from paths, and verbs that open, unpack, read, parse, check and save them.

    Pipe.files("data/*.csv").open_files("rb").parse_csv()       the same as Pipe.csv("data/*.csv")

Every verb that reads a file takes `(path, stream)` samples; files are read by any worker, in any number.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import LARGEST
from headrace.pipe.verbs.growing import grow, keywords, start
from headrace.pipe.verbs.remote import RemoteVerbs

if TYPE_CHECKING:
    from headrace.ops.archives.decompress import CompressionType
    from headrace.pipe.graph import Pipe
    from headrace.sources.cache import DiskCache
    from headrace.sources.listing import Masks
    from headrace.sources.stream import StreamWrapper

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class FileVerbs(RemoteVerbs):
    """What a Pipe can do with files."""

    __slots__ = ()

    # --- pipes that start from paths --------------------------------------------------------------------------------

    @staticmethod
    def files(paths: Paths) -> "Pipe[str]":
        """Paths, patterns (`*`, `**`, `{000..009}`), folders and URLs, as a fixed list of files."""
        from headrace.sources.files import Files
        from headrace.sources.listing import expand

        return start(Files(tuple(expand(paths))))

    @staticmethod
    def lines(paths: Paths, *, encoding: str = "utf-8", errors: str = "strict") -> "Pipe[str]":
        """Every line of these files, without its end."""
        return FileVerbs.files(paths).open_files("rb").readlines(
            decode=True, encoding=encoding, errors=errors, return_path=False
        )  # fmt: skip

    @staticmethod
    def csv(
        paths: Paths, *, header: bool = False, encoding: str = "utf-8", errors: str = "strict", **fmtparams: Any
    ) -> "Pipe[Any]":
        """Every row of these files: a list, or with `header` a dict by the names in each file's first row."""
        opened = FileVerbs.files(paths).open_files("rb")
        if header:
            return opened.parse_csv_as_dict(encoding=encoding, errors=errors, **fmtparams)
        return opened.parse_csv(encoding=encoding, errors=errors, **fmtparams)

    @staticmethod
    def jsonl(paths: Paths, *, encoding: str = "utf-8", errors: str = "strict") -> "Pipe[Any]":
        """The document on each line of these files."""
        return FileVerbs.files(paths).open_files("rb").parse_jsonl(encoding=encoding, errors=errors)

    @staticmethod
    def tar(
        paths: Paths, *, cache: "DiskCache | None" = None, max_bytes: int = LARGEST
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Every file inside these archives, as (path, stream); one that is unpacked may have `max_bytes`."""
        return FileVerbs.files(paths).open_files("rb", cache=cache).load_from_tar(max_bytes=max_bytes)

    @staticmethod
    def shards(paths: Paths, *, cache: "DiskCache | None" = None, max_bytes: int = LARGEST) -> "Pipe[dict[str, Any]]":
        """The samples of these tar archives, files of one name as one dict of bytes by their endings.

        A sample of a compressed archive may have `max_bytes`.
        """
        from headrace.ops.archives.webdataset import LoadShards

        return grow(FileVerbs.files(paths).open_files("rb", cache=cache), LoadShards(max_bytes))

    @staticmethod
    def tfrecords(paths: Paths, spec: object = None) -> "Pipe[dict[str, Any]]":
        """Every example of these TFRecord files."""
        return FileVerbs.files(paths).open_files("rb").load_from_tfrecord(spec)

    @staticmethod
    def stored(
        paths: Paths, format: str | None = None, *, index: "str | os.PathLike[str] | None" = None, trust: bool = False
    ) -> "Pipe[Any]":
        """The samples of stored files (tar, jsonl, tfrecord, mds and more), any of them by its position.

        So `shuffle()` is exact and resuming costs nothing. The format is that of the ending, or given. Where finding
        the samples means reading the files, that is done once and kept beside them, or in the folder `index`.
        """
        from headrace.sources.stored.formats import stored

        return start(stored(paths, format, index, trust))

    # --- listing and opening ----------------------------------------------------------------------------------------

    def list_files(
        self,
        masks: "Masks" = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> "Pipe[str]":
        """The files in each folder that comes in, sorted folder by folder."""
        from headrace.ops.files.list_files import ListFiles

        return grow(self, ListFiles(masks, recursive, abspath, non_deterministic, length))

    def open_files(
        self, mode: str = "r", encoding: str | None = None, length: int = -1, *, cache: "DiskCache | None" = None
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each path or URL as (path, stream)."""
        from headrace.ops.files.open_files import OpenFiles

        return grow(self, OpenFiles(mode, encoding, length, cache))

    def read_from_stream(self, chunk: int | None = None) -> "Pipe[tuple[str, Any]]":
        """Each file's content as (path, content), in pieces of `chunk` bytes if given."""
        from headrace.ops.files.read_from_stream import ReadFromStream

        return grow(self, ReadFromStream(chunk))

    # --- text formats -----------------------------------------------------------------------------------------------

    def readlines(
        self,
        *,
        skip_lines: int = 0,
        strip_newline: bool = True,
        decode: bool = False,
        encoding: str = "utf-8",
        errors: str = "strict",
        return_path: bool = True,
    ) -> "Pipe[Any]":
        """Each line of each file, as (path, line)."""
        from headrace.ops.text.text_lines import ReadLines

        return grow(self, ReadLines(skip_lines, strip_newline, decode, encoding, errors, return_path))

    def parse_csv(
        self,
        *,
        skip_lines: int = 0,
        decode: bool = True,
        encoding: str = "utf-8",
        errors: str = "strict",
        return_path: bool = False,
        as_tuple: bool = False,
        **fmtparams: object,
    ) -> "Pipe[Any]":
        """Each row of each file as a list; `fmtparams` are those of `csv.reader`."""
        from headrace.ops.text.parse_csv import ParseCsv

        return grow(self, ParseCsv(skip_lines, decode, encoding, errors, return_path, as_tuple, keywords(fmtparams)))

    def parse_csv_as_dict(
        self,
        *,
        skip_lines: int = 0,
        decode: bool = True,
        encoding: str = "utf-8",
        errors: str = "strict",
        return_path: bool = False,
        **fmtparams: object,
    ) -> "Pipe[Any]":
        """Each row of each file as a dict by the names in its first row."""
        from headrace.ops.text.parse_csv import ParseCsvAsDict

        return grow(self, ParseCsvAsDict(skip_lines, decode, encoding, errors, return_path, keywords(fmtparams)))

    def parse_json_files(self, **kwargs: object) -> "Pipe[tuple[str, Any]]":
        """Each file as (path, document); `kwargs` are those of `json.loads`."""
        from headrace.ops.text.parse_json import ParseJsonFiles

        return grow(self, ParseJsonFiles(keywords(kwargs)))

    def parse_jsonl(
        self, *, encoding: str = "utf-8", errors: str = "strict", return_path: bool = False, **kwargs: object
    ) -> "Pipe[Any]":
        """The document on each line of each file."""
        from headrace.ops.text.parse_json import ParseJsonl

        return grow(self, ParseJsonl(encoding, errors, return_path, keywords(kwargs)))

    def lines_to_paragraphs(self, joiner: Callable[[list[Any]], Any] | None = None) -> "Pipe[tuple[str, Any]]":
        """Consecutive (path, line) samples of one file as (path, paragraph)."""
        from headrace.ops.text.lines_to_paragraphs import LinesToParagraphs, join_lines

        return grow(self, LinesToParagraphs(joiner or join_lines))

    def load_parquet(
        self, columns: Sequence[str] | None = None, *, form: str = "rows", use_threads: bool = False
    ) -> "Pipe[Any]":
        """Each row of each parquet file; `form`: rows, columns, table, pandas."""
        from headrace.tables.ops.load_parquet import LoadParquet

        return grow(self, LoadParquet(columns, form, use_threads))

    # --- archives ---------------------------------------------------------------------------------------------------

    def load_from_tar(
        self, mode: str = "r:*", length: int = -1, *, max_bytes: int = LARGEST
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each regular file of each tar archive as (archive/name, stream); unpacked, one may have `max_bytes`."""
        from headrace.ops.archives.load_from_tar import LoadFromTar

        return grow(self, LoadFromTar(mode, length, max_bytes))

    def load_from_zip(self, length: int = -1, *, max_bytes: int = LARGEST) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file of each zip archive as (archive/name, stream); one read of it gives at most `max_bytes`."""
        from headrace.ops.archives.load_from_zip import LoadFromZip

        return grow(self, LoadFromZip(length, max_bytes))

    def load_from_rar(self, *, length: int = -1, max_bytes: int = LARGEST) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file of each rar archive as (archive/name, stream); one read of it gives at most `max_bytes`."""
        from headrace.ops.archives.load_from_rar import LoadFromRar

        return grow(self, LoadFromRar(length, max_bytes))

    def load_from_bz2(self, length: int = -1, *, max_bytes: int = LARGEST) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file decompressed, with `.bz2` taken off its path; one read of it gives at most `max_bytes`."""
        from headrace.ops.archives.decompress import LoadFromBz2

        return grow(self, LoadFromBz2(length, max_bytes))

    def load_from_xz(self, length: int = -1, *, max_bytes: int = LARGEST) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file decompressed, with `.xz` taken off its path; one read of it gives at most `max_bytes`."""
        from headrace.ops.archives.decompress import LoadFromXz

        return grow(self, LoadFromXz(length, max_bytes))

    def decompress(
        self, file_type: "str | CompressionType | None" = None, *, max_bytes: int = LARGEST
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """Each file decompressed, by its name or by the given type (gzip, lzma, tar, zip, bz2).

        What is read piece by piece may be of any size; a single read gives at most `max_bytes`, a line a tenth of that.
        """
        from headrace.ops.archives.decompress import Decompress

        return grow(self, Decompress(file_type, max_bytes))

    def extract(
        self, file_type: "str | CompressionType | None" = None, *, max_bytes: int = LARGEST
    ) -> "Pipe[tuple[str, StreamWrapper]]":
        """The old name of `decompress`."""
        return self.decompress(file_type, max_bytes=max_bytes)

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
