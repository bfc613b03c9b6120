"""HTTP: ranges of a URL (extra `remote`), and the whole of it where the server gives none.

A server that ignores ranges, or does not tell how large a file is, is read on one connection from front to back, which
is continued at the byte reached; `Unranged` says so.
"""

import os
from functools import lru_cache
from typing import Any, NoReturn

from headrace.secrets import cleaned, shown
from headrace.sources.bytes import FileState
from headrace.sources.extra import import_extra
from headrace.sources.remote import Part, RemoteFile
from headrace.sources.retry import Body, FileChanged, RemoteStream, ResumingFile, read_past

TIMEOUT = 60.0
"""Seconds without a single byte after which a connection counts as broken, when the caller gives none."""
REQUEST = 60.0
"""Seconds that a request for a range may take, before what has come so far is taken and the rest asked for again."""
CONNECTIONS = 32
PIECE = 1 << 20


class Unranged(Exception):
    """The server has answered a request for a range with the whole file."""


@lru_cache(maxsize=4)
def _session(process: int) -> Any:
    """The connections of this process, which are kept between requests."""
    requests = import_extra("remote", "requests")
    session = requests.Session()
    adapter = import_extra("remote", "requests.adapters").HTTPAdapter(pool_connections=8, pool_maxsize=CONNECTIONS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def get(url: str, timeout: float | None, headers: dict[str, str], options: dict[str, Any]) -> Any:
    """One GET whose body is not read yet; `timeout` None is `TIMEOUT`."""
    requests = import_extra("remote", "requests")
    given = {**options, "headers": {**headers, **(options.get("headers") or {})}}
    try:
        return _session(os.getpid()).get(
            url, **{"timeout": TIMEOUT if timeout is None else timeout, "stream": True, **given}
        )
    except requests.RequestException as error:
        _raise_clean(error, url)


def _raise_clean(error: Any, url: str) -> NoReturn:
    """The same error, without what its text, its causes and its request say of secrets in the URL."""
    text = cleaned(str(error).replace(url, shown(url)))
    _, question, query = url.partition("?")
    if question:
        text = text.replace(query, "...")
    raise type(error)(text) from None


def _check_status(response: Any, url: str) -> None:
    if response.status_code >= 400:
        kind = import_extra("remote", "requests").HTTPError
        raise kind(f"{response.status_code} {response.reason} for {shown(url)}", response=response)


class HttpOrigin:
    """The file behind a URL; `options` go to `requests.get`."""

    def __init__(self, url: str, timeout: float | None = None, options: dict[str, Any] | None = None) -> None:
        self._url, self._timeout, self._options = url, timeout, options or {}

    def fetch(self, start: int, stop: int) -> Part:
        # Identity: of a compressed reply, no byte is a byte of the file.
        headers = {"Accept-Encoding": "identity", "Range": f"bytes={start}-{stop - 1}"}
        with get(self._url, self._timeout, headers, self._options) as response:
            told = response.headers
            if response.status_code == 416 and told.get("Content-Range", "").endswith("*/0"):
                return Part(b"", _state(told, 0))
            _check_status(response, self._url)
            if response.status_code != 206:
                raise Unranged(f"{shown(self._url)}: the server does not answer requests for a part of the file")
            span, _, total = told.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if span.partition("-")[0] != str(start) or not total.isdecimal():
                raise ConnectionError(f"{shown(self._url)}: asked for byte {start}, got {told.get('Content-Range')!r}")
            state = _state(told, int(total))
            return Part(*_read(response.raw, min(stop, state.size) - start, state))


def _read(raw: Any, size: int, state: FileState) -> Part:
    """Up to so many bytes of a body: what has come when the connection breaks, or takes too long, is kept."""
    import time

    room = memoryview(bytearray(size))
    read, at, end = getattr(raw, "read1", raw.read), 0, time.monotonic() + REQUEST
    try:
        while at < size:
            data = read(min(PIECE, size - at))
            if not data:
                raise ConnectionError(f"the connection ended {size - at} bytes early")
            room[at : at + len(data)] = data
            at += len(data)
            if time.monotonic() > end:
                raise TimeoutError(f"{size} bytes had not come in {REQUEST:g} seconds")
    except Exception as error:
        return Part(room[:at], state, error)
    return Part(room, state)


def _state(headers: Any, size: int) -> FileState:
    return FileState(size, 0, 0, tag=headers.get("ETag") or headers.get("Last-Modified") or "")


def open_http(url: str, timeout: float | None = None, **options: Any) -> RemoteStream:
    """The body of `url` as a file; `options` go to `requests.get`."""
    try:
        found = RemoteFile(url, origin=HttpOrigin(url, timeout, options)).open_stream()
    except Unranged:
        found = _one_connection(url, timeout, options)
    assert isinstance(found, RemoteStream)
    return found


def _one_connection(url: str, timeout: float | None, options: dict[str, Any]) -> RemoteStream:
    known: tuple[str | None, str | None] | None = None
    """Entity tag and date of the first reply: the version of the file."""

    def connect(offset: int) -> tuple[Body, int | None]:
        response = get(url, timeout, {"Accept-Encoding": "identity"}, options)
        try:
            return response.raw, answer(response, offset)
        except BaseException:
            response.close()
            raise

    def answer(response: Any, offset: int) -> int | None:
        """Check a reply, and read its body up to byte `offset`; the size of the file, if the server tells it."""
        nonlocal known
        headers = response.headers
        _check_status(response, url)
        version = (headers.get("ETag"), headers.get("Last-Modified"))
        if known is not None and known != version:
            raise FileChanged(f"{shown(url)} changed while it was read: it was {known}, now it is {version}")
        known = version
        read_past(response.raw, offset)
        length = headers.get("Content-Length", "")
        return int(length) if length.isdecimal() and not headers.get("Content-Encoding") else None

    return RemoteStream(ResumingFile(connect, url))
