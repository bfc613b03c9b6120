"""The output of all ranks, as whole tagged lines, in the order in which it arrives.

    [rank 2] epoch 1             rank 2 wrote "epoch 1"; what it writes to stderr goes to our stderr
    [1,2]<stdout>:epoch 1        the same in mpirun's form, which tells the streams apart in one file

A line is what ends with a newline (or with the end of the stream: then the newline is added). A carriage return starts
the line again, as on a terminal: of a progress bar the last state is shown when its line ends, and until then its
present state once in `BAR_SECONDS`, each as a line of its own. A line of more than `LONGEST` bytes is cut.
Bytes are passed on as they are, never decoded.

`only=N` shows rank N alone. What the others write to stderr is kept (in memory, then in an unnamed file), so that
`show_hidden(rank)` can show why a hidden rank failed.
"""

import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

BAR_SECONDS = 1.0
LONGEST = 1 << 20
_KEEP_IN_MEMORY = 1 << 20


class LineSplitter:
    """Bytes of one stream in, whole lines (without their newline) out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = b""
        self._clock = clock
        self._bar_shown: float | None = None

    def feed(self, data: bytes) -> list[bytes]:
        *whole, rest = (self._rest + data).split(b"\n")
        lines = [_last_state(line) for line in whole]
        if lines:
            self._bar_shown = None
        lines += self._bar(rest)
        while len(self._rest) > LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [_last_state(rest)] if rest.strip(b"\r") else []

    def _bar(self, rest: bytes) -> list[bytes]:
        """Keep the present state of an unfinished line (a progress bar); show it once in BAR_SECONDS."""
        done, returned, now = rest.rpartition(b"\r")
        state = _last_state(done)
        if not returned or not (now or state):
            self._rest = rest
            return []
        # a return at the very end may belong to "\r\n" or begin the next state: the present one stands before it
        self._rest = b"\r" + now if now else state + b"\r"
        when = self._clock()
        if self._bar_shown is None:
            self._bar_shown = when
        if not state or when - self._bar_shown < BAR_SECONDS:
            return []
        self._bar_shown = when
        return [state]


def _last_state(line: bytes) -> bytes:
    """What a terminal shows of a line with carriage returns: the text after the last one that has text after it."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class TaggedOutput:
    """Writes what ranks print as tagged lines. Several threads may call it; each call writes whole lines."""

    def __init__(self, out: IO[bytes], err: IO[bytes], only: int | None = None, mpi_tags: bool = False) -> None:
        self._streams = {"stdout": out, "stderr": err}
        self._only = only
        self._mpi_tags = mpi_tags
        self.on_broken: Callable[[], None] = lambda: None
        self.broken: OSError | None = None  # why nothing is shown any more
        self._lock = threading.Lock()
        self._lines: dict[tuple[int, str, int], LineSplitter] = {}
        self._hidden: dict[int, IO[bytes]] = {}

    def feed(self, rank: int, stream: str, data: bytes, pipe: int = 0) -> None:
        """Show what a rank has written. `pipe` tells apart the pipes of a rank that was started again: the old and the
        new one may both be open for a moment."""
        with self._lock:
            self._show(rank, stream, self._lines.setdefault((rank, stream, pipe), LineSplitter()).feed(data))

    def finish(self, rank: int, stream: str, pipe: int = 0) -> None:
        """The stream has ended: an unfinished line is shown as it is."""
        with self._lock:
            lines = self._lines.pop((rank, stream, pipe), None)
            if lines:
                self._show(rank, stream, lines.finish())

    def say(self, text: str) -> None:
        """Show a message of the launcher."""
        self.untagged(text.encode(errors="surrogateescape") + b"\n")

    def untagged(self, text: bytes) -> None:
        """Show text that no rank has written, as it is."""
        with self._lock:
            self._write("stderr", text)

    def show_hidden(self, rank: int) -> None:
        """Show what a hidden rank has written to stderr so far."""
        with self._lock:
            kept = self._hidden.pop(rank, None)
            if kept is None:
                return
            with kept:
                kept.seek(0)
                for line in kept:
                    self._write("stderr", line)

    def drop_hidden(self) -> None:
        """Drop what hidden ranks have written: they did not fail."""
        with self._lock:
            while self._hidden:
                self._hidden.popitem()[1].close()

    def _show(self, rank: int, stream: str, lines: list[bytes]) -> None:
        if not lines:
            return
        tag = b"[1,%d]<%s>:" % (rank, stream.encode()) if self._mpi_tags else b"[rank %d] " % rank
        text = b"".join(b"%s%s\n" % (tag, line) for line in lines)
        if self._only is None or rank == self._only:
            self._write(stream, text)
        elif stream == "stderr":
            if rank not in self._hidden:
                self._hidden[rank] = tempfile.SpooledTemporaryFile(_KEEP_IN_MEMORY)  # noqa: SIM115 - closed by show_hidden or drop_hidden
            self._hidden[rank].write(text)

    def _write(self, stream: str, text: bytes) -> None:
        if self.broken:
            return
        try:
            self._streams[stream].write(text)
            self._streams[stream].flush()
        except OSError as error:  # the reader has gone, or the disk is full: end the job, but keep reading its pipes
            self.broken = error
            self.on_broken()
