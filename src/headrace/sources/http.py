"""HTTP: a URL as a file, read in one pass and continued at the byte reached (extra `remote`).

Continuing asks for `Range: bytes=N-` and checks that the file is still the same one, by the entity tag or the date of
its first reply. A server that ignores ranges is read again up to that byte.
"""

from typing import Any

from headrace.sources.extra import need
from headrace.sources.retry import Body, FileChanged, RemoteStream, Resuming, Retry

TIMEOUT = 60.0
"""Seconds without a single byte after which a connection counts as broken, when the caller gives none."""


def open_http(url: str, timeout: float | None = None, retry: Retry | None = None, **options: Any) -> RemoteStream:
    """The body of `url`; `options` go to `requests.get`."""
    connect = _Connect(url, timeout, options)
    raw = Resuming(connect, url, retry)
    return RemoteStream(raw)


class _Connect:
    """Opens the URL at a byte, and remembers which version of the file it was."""

    def __init__(self, url: str, timeout: float | None, options: dict[str, Any]) -> None:
        self._url = url
        self._timeout = TIMEOUT if timeout is None else timeout
        self._options = options
        self._version: tuple[str | None, str | None] | None = None

    def __call__(self, offset: int) -> tuple[Body, int | None]:
        response = get(self._url, self._timeout, self._asked(offset), self._options)
        try:
            return self._answer(response, offset)
        except BaseException:
            response.close()
            raise

    def _asked(self, offset: int) -> dict[str, str]:
        # Identity: with a compressed reply, the byte reached would not be a byte of the file.
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        return headers

    def _answer(self, response: Any, offset: int) -> tuple[Body, int | None]:
        headers = response.headers
        if response.status_code == 416 and headers.get("Content-Range", "").endswith(f"/{offset}"):
            return _Reply(response), offset  # the connection broke exactly at the end
        response.raise_for_status()
        version = (headers.get("ETag"), headers.get("Last-Modified"))
        if self._version is not None and self._version != version:
            raise FileChanged(f"{self._url} changed while it was read: it was {self._version}, now it is {version}")
        self._version = version
        if response.status_code == 206:
            span, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if span.partition("-")[0] != str(offset):
                raise ConnectionError(f"{self._url}: asked for byte {offset}, got {headers.get('Content-Range')!r}")
            return _Reply(response), int(total) if total.isdecimal() else None
        body = _Reply(response)
        left = offset
        while left:
            dropped = body.read(min(left, 1 << 20))
            if not dropped:
                raise ConnectionError(f"{self._url}: the connection ended before byte {offset}")
            left -= len(dropped)
        length = headers.get("Content-Length", "")
        return body, int(length) if length.isdecimal() and not headers.get("Content-Encoding") else None


class _Reply:
    """The body of one response."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def read(self, size: int, /) -> bytes:
        return self._response.raw.read(size)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._response.close()


def get(url: str, timeout: float | None, headers: dict[str, str], options: dict[str, Any], session: Any = None) -> Any:
    """One GET whose body is not read yet."""
    asker = session if session is not None else need("remote", "requests")
    asked = {**options, "headers": {**headers, **(options.get("headers") or {})}}
    return asker.get(url, **{"timeout": timeout, "stream": True, **asked})
