"""Open: files to be read from front to back, whatever place a path or a URL names.

With a `DiskCache`, a remote file is fetched once for all processes of the machine.
"""

import io
import os
from functools import partial
from typing import Any

from headrace.sources.bytes import Path, is_remote, local, local_stream
from headrace.sources.cache import DiskCache
from headrace.sources.pool import UNITS, Coming
from headrace.sources.remote import RemoteFile
from headrace.sources.stream import StreamWrapper, reopenable


def open_path(path: Path, mode: str = "rb", encoding: str | None = None, cache: DiskCache | None = None) -> Any:
    """A file to read; `mode` as for `open()`."""
    url = os.fspath(path)
    if not is_remote(path):
        binary: Any = local_stream(local(path))
    else:
        binary = open_remote(url) if cache is None else cache.open(url, lambda: open_remote(url))
    return as_text(binary, mode, encoding)


def as_text(binary: Any, mode: str, encoding: str | None) -> Any:
    """A binary file as `mode` says."""
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8")


def open_stream(
    path: Path, mode: str = "rb", encoding: str | None = None, cache: DiskCache | None = None
) -> StreamWrapper:
    """A file as a stream that is closed once, and that another process can open again."""
    return reopenable(partial(open_path, os.fspath(path), mode, encoding, cache), os.fspath(path))


_begun: dict[tuple[int, str], Coming[Any]] = {}
"""Remote files whose first bytes are on their way, by process."""
BEGUN = 48
"""Of those, the most at a time."""


def begin(path: Path) -> None:
    """Open a remote file that is asked for soon, in a thread: `open_path` takes it then."""
    key = os.getpid(), os.fspath(path)
    if is_remote(path) and key not in _begun:
        while len(_begun) >= BEGUN:  # (nobody has asked for it: the loop was left)
            _begun.pop(next(iter(_begun)), None)
        _begun[key] = UNITS.submit(partial(_open_remote, key[1]))


def open_remote(url: str) -> Any:
    coming = _begun.pop((os.getpid(), url), None)
    return _open_remote(url) if coming is None else coming.result()


def _open_remote(url: str) -> Any:
    from headrace.sources.origins import is_http
    from headrace.sources.stores import knows

    if is_http(url):
        from headrace.sources.http import open_http

        return open_http(url)
    if knows(url):
        return RemoteFile(url).open_stream()
    from headrace.sources.by_fsspec import open_fsspec

    return open_fsspec(url)
