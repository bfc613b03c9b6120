"""Retry: a remote file that survives a failing connection.

    connect(offset)  ->  body, size        opens the file at a byte; the size of the whole file, when it is known
    body.read(n)     ->  fails, or ends early
                         wait (longer each time), connect(the byte reached), go on

Attempts count failures in a row: every byte that arrives starts the count again. Errors that another attempt cannot
cure (a file that is not there, a refused permission, a file that changed while it was read) are raised at once.
"""

import io
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from headrace.plan.seed import key
from headrace.sources.raw import CHUNK, RawFile

ATTEMPTS = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
"""Seconds between two attempts: doubled after each failure."""
BUFFER = 1 << 17
SKIP = 1 << 18
"""A jump ahead shorter than this is read and dropped: cheaper than another connection."""


class Body(Protocol):
    """The content of a file from some byte on, as one connection delivers it."""

    def read(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


Connect = Callable[[int], tuple[Body, int | None]]


def read_past(body: Body, count: int) -> None:
    """Read so many bytes and drop them."""
    while count:
        dropped = body.read(min(count, CHUNK))
        if not dropped:
            raise ConnectionError("the connection ended before the byte that was reached")
        count -= len(dropped)


class FileChanged(OSError):
    """A remote file was replaced while it was being read."""


def pause(failures: int, path: str) -> float:
    """Seconds to wait after this many failures in a row, varied so that readers do not all come back at once."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (failures - 1))
    return longest * (0.5 + key("pause", path, os.getpid(), failures) % 1024 / 2048)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    status = getattr(getattr(error, "response", None), "status_code", None) or getattr(error, "status", None)
    if isinstance(status, int):
        return status >= 500 or status in (408, 425, 429)
    never = FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError | FileChanged | ValueError
    if isinstance(error, never):
        return False
    if isinstance(error, OSError | EOFError):
        return True
    return type(error).__module__.partition(".")[0] in ("urllib3", "aiohttp", "http", "botocore")


class ResumingFile(RawFile):
    """The raw bytes of the remote file `path`, read through as many connections as it takes."""

    def __init__(self, connect: Connect, path: str) -> None:
        super().__init__(path)
        self._connect = connect
        self._body: Body | None = None
        self._body_at = 0
        self._stop = threading.Event()
        self._try(lambda: None)  # connects: a file that is not there is known now

    def fetch(self, wanted: int) -> bytes:
        data: bytes = self._try(lambda: self._fetch_once(wanted))
        return data

    def close(self) -> None:
        if not self.closed:
            self._stop.set()
            self._disconnect()
        super().close()

    def _fetch_once(self, wanted: int) -> bytes:
        if self.size is not None and self.position >= self.size:
            return b""
        assert self._body is not None
        read_past(self._body, self.position - self._body_at)
        self._body_at = self.position
        data = self._body.read(wanted)
        if not data and self.size is not None:
            raise ConnectionError(f"the connection ended at byte {self.position} of {self.size}")
        self._body_at += len(data)
        return data

    def _connect_near(self) -> None:
        """Make sure of a connection that stands at the position, or shortly before it."""
        if self._body is not None and not self._body_at <= self.position <= self._body_at + SKIP:
            self._disconnect()
        if self._body is None and (self.size is None or self.position < self.size):
            self._body, size = self._connect(self.position)
            self._body_at = self.position
            if size is not None and self.size is not None and size != self.size:
                raise FileChanged(f"{self.path} changed while it was read: {self.size} bytes, now {size}")
            self.size = size if self.size is None else self.size

    def _try(self, work: Callable[[], Any]) -> Any:
        """Connect and call `work`, until it succeeds or has failed ATTEMPTS times."""
        failures = 0
        while True:
            try:
                self._connect_near()
                return work()
            except Exception as error:
                self._disconnect()
                failures += 1
                if not is_transient(error):
                    raise
                if failures >= ATTEMPTS:
                    error.add_note(f"gave up on {self.path} at byte {self.position} after {failures} attempts")
                    raise
                if self._stop.wait(pause(failures, self.path)):
                    raise ValueError("I/O operation on closed file") from error

    def _disconnect(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            try:
                body.close()
            except Exception:  # a broken connection may refuse to be closed as well: it is gone either way
                pass


class RemoteStream(io.BufferedReader):
    """A remote file with a buffer. It can seek, but reading from front to back needs the fewest connections."""

    sequential = True

    def __init__(self, connect: Connect, path: str) -> None:
        super().__init__(ResumingFile(connect, path), BUFFER)

    @property
    def size(self) -> int | None:
        """The size of the whole file, or None."""
        return self.raw.size  # type: ignore[attr-defined, no-any-return]
