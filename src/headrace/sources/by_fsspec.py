"""fsspec: files of any file system that it knows (extra `remote`, and the package of the protocol)."""

from typing import Any

from headrace.errors import MissingExtra, missing
from headrace.sources.bytes import FileState
from headrace.sources.extra import import_extra
from headrace.sources.remote import Part, RemoteFile
from headrace.sources.retry import Body, RemoteStream, ResumingFile, read_past
from headrace.sources.stores import KINDS, protocol_of

TAGS = ("ETag", "etag", "e_tag", "md5Hash", "md5", "checksum", "LastModified", "last_modified", "mtime", "created")
"""What file systems call that by which one version of a file differs from another, the best first."""


def filesystem(url: str, **options: object) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    core = import_extra("remote", "fsspec.core")
    try:
        files, path = core.url_to_fs(url, **options)
    except ImportError as absent:
        protocol = protocol_of(url)
        if protocol in KINDS:
            raise missing("stores", "obstore") from None
        raise MissingExtra(f"{protocol}:// needs another package: {absent}") from None
    return files, path


class FsspecOrigin:
    """A file of a file system. What it is now is asked when it is opened, not with each request."""

    def __init__(self, url: str, **options: object) -> None:
        self._files, self._path = filesystem(url, **options)
        self._state: FileState | None = None

    def fetch(self, start: int, stop: int) -> Part:
        if self._state is None:
            told = self._files.info(self._path)
            if not isinstance(told.get("size"), int):
                raise Unsized
            tag = next((str(told[name]) for name in TAGS if told.get(name)), "")
            self._state = FileState(told["size"], 0, 0, tag=tag)
        if start >= self._state.size:
            return Part(b"", self._state)
        return Part(self._files.cat_file(self._path, start=start, end=min(stop, self._state.size)), self._state)


class Unsized(Exception):
    """The file system does not say how large the file is."""


def open_fsspec(url: str, open_options: dict[str, Any] | None = None, **options: object) -> RemoteStream:
    """The content of a file; `options` make the file system, `open_options` open the file."""
    if not open_options:
        try:
            found = RemoteFile(url, origin=FsspecOrigin(url, **options)).open_stream()
            assert isinstance(found, RemoteStream)
            return found
        except Unsized:
            pass
    return _one_connection(url, open_options or {}, options)


def _one_connection(url: str, opening: dict[str, Any], options: dict[str, object]) -> RemoteStream:
    files, path = filesystem(url, **options)
    sized = not opening.get("compression")

    def connect(offset: int) -> tuple[Body, int | None]:
        body = files.open(path, "rb", **opening)
        try:
            _forward(body, offset)
        except BaseException:
            body.close()
            raise
        size = getattr(body, "size", None)
        return body, size if sized and isinstance(size, int) else None

    return RemoteStream(ResumingFile(connect, url))


def _forward(body: Any, offset: int) -> None:
    """Go to a byte: by seeking where that works, else by reading up to it."""
    if not offset:
        return
    if body.seekable():
        try:
            body.seek(offset)
            return
        except (ValueError, OSError, NotImplementedError):
            pass  # it says that it can seek, and cannot
    read_past(body, offset)
