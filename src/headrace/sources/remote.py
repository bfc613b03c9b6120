"""Remote files: any bytes of an object, as fast as the store gives them to one reader.

    pread_many   near spans are joined, large ones divided; several requests at once
    stream       blocks of 4 MB, up to eight of them on their way ahead of the reader. After a jump blocks are small
                 at first, because who jumps reads little

An *origin* makes single requests: HTTP, an object store, or any file system of fsspec. Each answer says which version
of the file it is of; another one than before is `FileChanged`. Failures are retried here (`retry`), not by clients.
"""

import io
from collections import deque
from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import NamedTuple, Protocol

from headrace.observe.meter import files
from headrace.secrets import shown
from headrace.sources.bytes import Buffer, ByteFile, FileState, Span
from headrace.sources.pool import REQUESTS, Coming
from headrace.sources.raw import RawFile
from headrace.sources.retry import Attempts, FileChanged, RemoteStream

BLOCK = 4 << 20
"""Bytes of one request, about: 16 of them at once fill any network, and a failure costs little."""
FIRST = 1 << 20
"""Bytes that are asked for when a file is opened to be read from front to back."""
SMALL = 1 << 18
"""Bytes of the first request after a jump."""
AHEAD = 8
GAP = 1 << 17
"""Bytes between two spans that are read and dropped: another request takes longer."""
BUFFER = 1 << 20


class Part(NamedTuple):
    """What one request gave."""

    data: Buffer
    """The first of the bytes that were asked for: all of them, unless the file ends before or the connection broke."""
    state: FileState
    broken: Exception | None = None
    """Why there are not more of them."""


class FileOrigin(Protocol):
    """Where remote files come from."""

    def fetch(self, start: int, stop: int) -> Part:
        """One request for these bytes, at least one. An empty file gives no bytes and its state."""


class RemoteFile(ByteFile):
    """The file behind `url`. `state`: as it is known to be; otherwise that of the first answer."""

    def __init__(self, url: str, state: FileState | None = None, origin: FileOrigin | None = None) -> None:
        from headrace.sources.origins import origin_of

        self.url = url
        self.path = shown(url)
        self._origin = origin_of(url) if origin is None else origin
        self._state = state
        self._closed = Event()
        self._begun: Buffer = b""
        """The start of the file, where it was read to know its state."""
        files.opened()

    @property
    def state(self) -> FileState:
        if self._state is None:
            self._fetch(0, 1)
        assert self._state is not None
        return self._state

    def pread(self, start: int, size: int) -> Buffer:
        return self.pread_many([(start, size)])[0]

    def pread_many(self, spans: Sequence[Span]) -> list[Buffer]:
        joined = join(spans)
        pieces = [piece for start, stop in joined for piece in divide(start, stop)]
        if len(pieces) == 1:
            found = {pieces[0][0]: self._fetch(*pieces[0])}
        else:
            coming = [(start, REQUESTS.submit(partial(self._fetch, start, stop))) for start, stop in pieces]
            found = {}
            try:
                for start, one in coming:
                    found[start] = one.result()
            finally:
                for _, one in coming:
                    one.cancel()
        whole = {start: _together([found[first] for first, _ in divide(start, stop)]) for start, stop in joined}
        return [self._span(whole, joined, *span) for span in spans]

    def _span(self, whole: dict[int, Buffer], joined: list[Span], start: int, size: int) -> Buffer:
        """One span of the bytes that were read; an error if the file ends before."""
        if not size:
            return b""
        first = next(first for first, stop in joined if first <= start < stop)
        data = memoryview(whole[first])[start - first : start - first + size]
        if len(data) < size:
            raise self.cut_off(start, size, self.size)
        return data

    def stream(self, start: int = 0) -> io.BufferedReader:
        return RemoteStream(BlockStream(self, start), BUFFER)

    def open_stream(self) -> io.BufferedReader:
        """The stream of a file of which nothing is known: its first bytes come with its state, in one request."""
        self._begun = self._fetch(0, FIRST)
        return self.stream()

    def forward(self) -> ByteFile:
        return Forward(self)

    def close(self) -> None:
        self._closed.set()

    def _fetch(self, start: int, stop: int) -> Buffer:
        """These bytes, by as many requests as it takes; fewer where the file ends before."""
        if stop <= start + len(self._begun) and start == 0:
            return memoryview(self._begun)[:stop]
        attempts, parts, at = Attempts(self.url, self._closed), list[Buffer](), start
        while True:
            try:
                part = self._origin.fetch(at, stop)
                files.read(len(part.data))
                self._check(part.state)
                parts.append(part.data)
                at += len(part.data)
                if at >= min(stop, part.state.size):
                    return _together(parts)
                if part.data:
                    attempts.progress()
                raise part.broken or ConnectionError(f"{self.path}: the connection ended at byte {at} of {stop}")
            except Exception as error:
                attempts.failed(error, at)

    def _check(self, now: FileState) -> None:
        if self._state is None:
            self._state = now
        if not self._state.is_same(now):
            raise FileChanged(
                f"{self.path} changed while it was read, or since the pipe was made: it had {_said(self._state)}, now "
                f"it has {_said(now)}; make the pipe anew"
            )


def _said(state: FileState) -> str:
    return f"{state.size} bytes" + (f" and the tag {state.tag}" if state.tag else "")


def _together(parts: list[Buffer]) -> Buffer:
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def join(spans: Sequence[Span]) -> list[Span]:
    """Spans (first byte, size) as stretches (first byte, first byte after it): near ones are one stretch."""
    found: list[Span] = []
    for start, size in sorted(span for span in spans if span[1]):
        if found and start <= found[-1][1] + GAP:
            found[-1] = found[-1][0], max(found[-1][1], start + size)
        else:
            found.append((start, start + size))
    return found


def divide(start: int, stop: int) -> list[Span]:
    """A stretch in requests of about BLOCK bytes, where it is so long that several are faster than one."""
    count = max(1, (stop - start) // BLOCK)
    step = -(-(stop - start) // count)
    return [(at, min(at + step, stop)) for at in range(start, stop, step)]


class BlockStream(RawFile):
    """A remote file from front to back, in blocks of which several are on their way."""

    def __init__(self, file: RemoteFile, start: int = 0) -> None:
        super().__init__(file.url, file.size)
        self._file = file
        self._blocks: deque[tuple[int, int, Coming[Buffer]]] = deque()
        """Blocks in order: where each begins and ends."""
        self._end = self.position = start
        self._depth, self._block = AHEAD, BLOCK
        if not start:
            self._end = min(len(file._begun), file.size)
        self._begun = file._begun if not start else b""

    def fetch(self, wanted: int) -> bytes:
        return bytes(self._next(wanted))

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        self.position += len(data)
        return len(data)

    def _next(self, wanted: int) -> Buffer:
        """Bytes from the position on, up to the end of the block that it lies in."""
        assert self.size is not None
        if self.position >= self.size or not wanted:
            return b""
        if self.position < len(self._begun):
            self._ask()
            return memoryview(self._begun)[self.position : self.position + wanted]
        while self._blocks and self._blocks[0][1] <= self.position:
            self._blocks.popleft()[2].cancel()
            self._depth = min(AHEAD, 2 * self._depth)
        if not (self._blocks and self._blocks[0][0] <= self.position) and self.position != self._end:
            self._jump()
        self._ask()
        start, _, coming = self._blocks[0]
        inside = self.position - start
        return memoryview(coming.result())[inside : inside + wanted]

    def _jump(self) -> None:
        self._drop()
        self._end, self._depth, self._block = self.position, 1, SMALL

    def _ask(self) -> None:
        """Have as many blocks on their way as are wanted."""
        assert self.size is not None
        while len(self._blocks) < self._depth and self._end < self.size:
            start, stop = self._end, min(self._end + self._block, self.size)
            self._blocks.append((start, stop, REQUESTS.submit(partial(self._file._fetch, start, stop))))
            self._end, self._block = stop, min(BLOCK, 2 * self._block)

    def _drop(self) -> None:
        while self._blocks:
            self._blocks.popleft()[2].cancel()

    def close(self) -> None:
        if not self.closed:
            self._drop()
            self._begun = b""
        super().close()


class Forward(ByteFile):
    """A remote file for reads that go from front to back, as a scan makes them."""

    def __init__(self, file: RemoteFile) -> None:
        self.path = file.path
        self._file = file
        self._stream: io.BufferedReader | None = None

    @property
    def state(self) -> FileState:
        return self._file.state

    def pread(self, start: int, size: int) -> bytes:
        if self._stream is None:
            self._stream = self._file.stream(start)
        elif start < self._stream.tell():
            self._stream.seek(start)  # (a little back: inside the buffer)
        # (Jumps go forward by less than what is on its way, or by the data of a member that nobody looks at.)
        while (passed := min(start - self._stream.tell(), BUFFER)) and self._stream.read(passed):
            pass
        data = self._stream.read(size)
        if len(data) < size:
            raise self.cut_off(start, size, start + len(data))
        return data

    def stream(self, start: int = 0) -> io.BufferedReader:
        return self._file.stream(start)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
