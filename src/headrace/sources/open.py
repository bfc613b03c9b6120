"""Open: the one place where a path or a URL is opened.

    a path, file://            Python's own open()
    http://, https://          headrace.sources.http (extra `remote`)
    anything else with ://     fsspec (extra `remote`, and the package of that protocol: s3fs, gcsfs ...)

Reads of remote files retry with growing pauses and go on at the byte reached. With a `DiskCache`, a remote file is
fetched once for all processes of the machine.
"""

import io
import os
import re
from functools import partial
from typing import Any

from headrace.errors import MissingExtra, missing
from headrace.sources.cache import DiskCache
from headrace.sources.counted import CountedFile
from headrace.sources.extra import import_extra
from headrace.sources.http import open_http
from headrace.sources.retry import Body, RemoteStream, read_past
from headrace.sources.stream import StreamWrapper, reopenable

Path = str | os.PathLike[str]
PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
"""What a URL begins with: `s3://`, or `simplecache::s3://`. (A file's own name may hold colons further on.)"""
STORES = {
    **dict.fromkeys(("s3", "s3a"), ("s3", "s3fs")),
    **dict.fromkeys(("gs", "gcs"), ("gcs", "gcsfs")),
    **dict.fromkeys(("az", "abfs"), ("azure", "adlfs")),
}
"""Protocol -> the extra that brings its package, and the package."""


def is_remote(path: Path) -> bool:
    """Whether a path is a URL of another place than this machine's own files."""
    text = os.fspath(path)
    return PROTOCOL.match(text) is not None and not text.startswith(("file://", "local://"))


def local(path: Path) -> str:
    """A path of this machine without its protocol."""
    return os.fspath(path).removeprefix("file://").removeprefix("local://")


def open_path(path: Path, mode: str = "rb", encoding: str | None = None, cache: DiskCache | None = None) -> Any:
    """A file to read; `mode` as for `open()`."""
    url = os.fspath(path)
    binary: Any
    if not is_remote(path):
        binary = io.BufferedReader(CountedFile(local(path)))
    else:
        binary = _remote(url) if cache is None else cache.open(url, lambda: _remote(url))
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8")


def open_stream(
    path: Path, mode: str = "rb", encoding: str | None = None, cache: DiskCache | None = None
) -> StreamWrapper:
    """A file as a stream that is closed once, and that another process can open again."""
    return reopenable(partial(open_path, os.fspath(path), mode, encoding, cache), os.fspath(path))


def open_fsspec(url: str, mode: str = "rb", open_options: dict[str, Any] | None = None, **options: object) -> Any:
    """A file to read through fsspec; `options` make the file system, `open_options` open the file."""
    opening = dict(open_options or {})
    files, path = filesystem(url, **options)
    encoding = opening.pop("encoding", None)
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

    binary = RemoteStream(connect, url)
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8")


def filesystem(url: str, **options: object) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    core = import_extra("remote", "fsspec.core")
    try:
        files, path = core.url_to_fs(url, **options)
    except ImportError as absent:
        protocol = url.partition("://")[0]
        if protocol in STORES:
            raise missing(*STORES[protocol]) from None
        raise MissingExtra(f"{protocol}:// needs another package: {absent}") from None
    return files, path


def _remote(url: str) -> Any:
    return open_http(url) if url.startswith(("http://", "https://")) and "::" not in url else open_fsspec(url)


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
