"""What ranks write, as whole tagged lines, in the order in which it arrives.

    rank 0 stdout ── pipe ──┐
    rank 0 stderr ── pipe ──┤ one thread ──> [1,0]<stdout>:epoch 1
    rank 1 stdout ── pipe ──┘                [1,1]<stderr>:a warning

The tags are those of `mpirun --tag-output`; stdout goes to our stdout, stderr to our stderr.
A line is what ends with a newline, or with the end of the stream. A carriage return ends the state of a progress bar;
of these states one a second is shown. A line of more than `LONGEST` bytes is cut. Bytes are never decoded.
`only=N` shows, of the other ranks, what they write to stderr alone.
"""

import os
import re
import select
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

BAR_SECONDS = 1.0
LONGEST = 1 << 20
_CHUNK = 1 << 20  # as much as a pipe ever holds: one read takes all that is there
_ENDS = re.compile(rb"\r?\n|\r(?!\Z)")  # a return at the very end may be half of "\r\n"


class LineSplitter:
    """Bytes of one stream in, whole lines (without their end) out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = b""
        self._clock = clock
        self._next_bar = 0.0

    def feed(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        begin, seen = 0, max(0, len(self._rest) - 1)
        text = self._rest + data
        for end in _ENDS.finditer(text, seen):
            line = text[begin : end.start()]
            begin = end.end()
            if end[0] != b"\r" or self._shows_bar(line):
                lines.append(line)
        self._rest = text[begin:]
        while len(self._rest) > LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [rest] if rest else []

    def _shows_bar(self, state: bytes) -> bool:
        now = self._clock()
        if not state.strip() or now < self._next_bar:
            return False
        self._next_bar = now + BAR_SECONDS
        return True


class TaggedOutput:
    """Our stdout and stderr, by number. Several threads may write; each call writes whole lines."""

    def __init__(self, out: int, err: int, only: int | None = None) -> None:
        self._files = {"stdout": out, "stderr": err}
        self._only = only
        self._lock = threading.Lock()
        self.on_broken: Callable[[], None] = lambda: None
        self.broken: OSError | None = None  # why nothing is shown any more

    def show(self, rank: int, stream: str, lines: list[bytes]) -> None:
        if stream == "stderr" or self._only is None or rank == self._only:
            tag = b"[1,%d]<%s>:" % (rank, stream.encode())
            self._write(stream, b"".join(tag + line + b"\n" for line in lines))

    def say(self, text: str) -> None:
        """Show a message of the launcher."""
        self.say_as_it_is(f"headrace: {text}\n".encode(errors="surrogateescape"))

    def say_as_it_is(self, text: bytes) -> None:
        self._write("stderr", text)

    def _write(self, stream: str, text: bytes) -> None:
        with self._lock:
            try:
                while text and not self.broken:
                    text = text[self._written(self._files[stream], text) :]
            except OSError as error:  # the reader has gone, or the disk is full: the job ends, its pipes are still read
                self.broken = error
                self.on_broken()

    @staticmethod
    def _written(file: int, text: bytes) -> int:
        try:
            return os.write(file, text)
        except BlockingIOError:  # whoever started us reads it without blocking, so neither may we
            select.select([], [file], [])
            return 0


@dataclass(frozen=True, slots=True)
class _Stream:
    rank: int
    name: str
    lines: LineSplitter


class RankPipes:
    """The pipes of ranks that are started together, and the thread that reads them until `close`.

    The writing ends stay open here, so that no stream ends before `close`. A process that still writes after it gets
    SIGPIPE.
    """

    def __init__(self, output: TaggedOutput) -> None:
        self._output = output
        self._selector = selectors.DefaultSelector()
        self._closing, self._close = os.pipe()
        self._selector.register(self._closing, selectors.EVENT_READ)
        self._writing = [self._close]
        self._thread = threading.Thread(target=self._read_all, name="headrace-output", daemon=True)

    def pipe(self, rank: int, name: str) -> int:
        """The writing end of a new pipe, for the rank's stdout or stderr."""
        reading, writing = os.pipe()
        self._selector.register(reading, selectors.EVENT_READ, _Stream(rank, name, LineSplitter()))
        self._writing.append(writing)
        return writing

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float | None = None) -> None:
        """Show all that was written until now; give up after so many seconds, if nobody reads our own output."""
        while self._writing:
            os.close(self._writing.pop())
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(seconds)

    def _read_all(self) -> None:
        closed = False
        while not closed:
            closed = self._read(self._selector.select())
        self._read(self._selector.select(0))
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._output.show(key.data.rank, key.data.name, key.data.lines.finish())
            os.close(key.fd)
        self._selector.close()

    def _read(self, ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Whether the pipes are being closed."""
        for key, _ in ready:
            if isinstance(key.data, _Stream):
                lines = key.data.lines.feed(os.read(key.fd, _CHUNK))
                self._output.show(key.data.rank, key.data.name, lines)
        return any(key.fd == self._closing for key, _ in ready)
