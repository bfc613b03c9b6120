"""Retry: what a request to a store may meet, and when it is made once more.

    attempts = Attempts(path)
    while True:
        try:
            return ask()                   # (`attempts.progress()` whenever bytes have arrived)
        except Exception as error:
            attempts.failed(error, byte)   # waits, longer each time; or raises

Attempts count failures in a row: bytes that arrive start the count again. Errors that another attempt cannot cure (a
file that is not there, a refused permission, a file that changed while it was read) are raised at once, and so is any
error once `PATIENCE` seconds have passed. This is the one layer that retries: clients of stores are told not to.
"""

import io
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from headrace.observe.meter import files
from headrace.plan.seed import key
from headrace.secrets import shown
from headrace.sources.raw import CHUNK, RawFile

ATTEMPTS = 6
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
"""Seconds between two attempts: doubled after each failure."""
PATIENCE = 300.0
"""Seconds that one block of a file may take with all its attempts."""
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


class Attempts:
    """The attempts of one read of the file `path`. `stop`, once set, ends a pause."""

    def __init__(self, path: str, stop: threading.Event | None = None) -> None:
        self._path = path
        self._stop = threading.Event() if stop is None else stop
        self._failures = 0
        self._end = time.monotonic() + PATIENCE

    def progress(self) -> None:
        self._failures = 0

    def failed(self, error: Exception, byte: int) -> None:
        """Wait before the next attempt; raise the error if there is none."""
        self._failures += 1
        if not is_transient(error):
            raise error
        late = time.monotonic() > self._end
        if self._failures >= ATTEMPTS or late:
            why = f"after {self._failures} attempts" if not late else f"when {PATIENCE:g} seconds had passed"
            error.add_note(f"gave up on {shown(self._path)} at byte {byte} {why}")
            raise error
        files.retried()
        if self._stop.wait(pause(self._failures, self._path)):
            raise ValueError("I/O operation on closed file") from error


class ResumingFile(RawFile):
    """The raw bytes of a remote file that can only be read from front to back, as a server without ranges gives it:
    through as many connections as it takes."""

    def __init__(self, connect: Connect, path: str) -> None:
        super().__init__(path)
        self._connect = connect
        self._body: Body | None = None
        self._body_at = 0
        self._stop = threading.Event()
        files.opened()
        self._try(lambda: None)  # connects: a file that is not there is known now

    def fetch(self, wanted: int) -> bytes:
        data: bytes = self._try(lambda: self._fetch_once(wanted))
        files.read(len(data), 0)
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
            files.read(0)
            self._body, size = self._connect(self.position)
            self._body_at = self.position
            if size is not None and self.size is not None and size != self.size:
                raise FileChanged(f"{shown(self.path)} changed while it was read: {self.size} bytes, now {size}")
            self.size = size if self.size is None else self.size

    def _try(self, work: Callable[[], Any]) -> Any:
        """Connect and call `work`, until it succeeds or has failed ATTEMPTS times."""
        attempts = Attempts(self.path, self._stop)
        while True:
            try:
                self._connect_near()
                return work()
            except Exception as error:
                self._disconnect()
                attempts.failed(error, self.position)

    def _disconnect(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            try:
                body.close()
            except Exception:  # a broken connection may refuse to be closed as well: it is gone either way
                pass


class RemoteStream(io.BufferedReader):
    """A remote file with a buffer. It can seek, but reading from front to back needs the fewest requests."""

    sequential = True

    def __init__(self, raw: RawFile, buffer: int = BUFFER) -> None:
        super().__init__(raw, buffer)

    @property
    def size(self) -> int | None:
        """The size of the whole file, or None."""
        return self.raw.size  # type: ignore[attr-defined, no-any-return]
