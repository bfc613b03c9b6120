"""HTTP: a URL as a file, read in one pass and continued at the byte reached (extra `remote`).

Continuing asks for `Range: bytes=N-` and checks that the file is still the same one, by the entity tag or the date of
its first reply. A server that ignores ranges is read again up to that byte.
"""

from typing import Any

from headrace.sources.extra import import_extra
from headrace.sources.retry import Body, FileChanged, RemoteStream, read_past

TIMEOUT = 60.0
"""Seconds without a single byte after which a connection counts as broken, when the caller gives none."""


def open_http(url: str, timeout: float | None = None, **options: Any) -> RemoteStream:
    """The body of `url`; `options` go to `requests.get`."""
    known: tuple[str | None, str | None] | None = None
    """Entity tag and date of the first reply: the version of the file."""

    def connect(offset: int) -> tuple[Body, int | None]:
        # Identity: with a compressed reply, the byte reached would not be a byte of the file.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={offset}-"} if offset else {})}
        response = get(url, timeout, headers, options)
        try:
            return response.raw, answer(response, offset)
        except BaseException:
            response.close()
            raise

    def answer(response: Any, offset: int) -> int | None:
        """Check a reply, and read its body up to byte `offset`; the size of the file, if the server tells it."""
        nonlocal known
        headers = response.headers
        if response.status_code == 416 and headers.get("Content-Range", "").endswith(f"/{offset}"):
            return offset  # the connection broke exactly at the end
        response.raise_for_status()
        version = (headers.get("ETag"), headers.get("Last-Modified"))
        if known is not None and known != version:
            raise FileChanged(f"{url} changed while it was read: it was {known}, now it is {version}")
        known = version
        if response.status_code == 206:
            span, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if span.partition("-")[0] != str(offset):
                raise ConnectionError(f"{url}: asked for byte {offset}, got {headers.get('Content-Range')!r}")
            return int(total) if total.isdecimal() else None
        read_past(response.raw, offset)
        length = headers.get("Content-Length", "")
        return int(length) if length.isdecimal() and not headers.get("Content-Encoding") else None

    return RemoteStream(connect, url)


def get(url: str, timeout: float | None, headers: dict[str, str], options: dict[str, Any]) -> Any:
    """One GET whose body is not read yet; `timeout` None is `TIMEOUT`."""
    client = import_extra("remote", "requests")
    given = {**options, "headers": {**headers, **(options.get("headers") or {})}}
    return client.get(url, **{"timeout": TIMEOUT if timeout is None else timeout, "stream": True, **given})
