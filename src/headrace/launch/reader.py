"""A thread that reads what ranks write, shows it, and notes in which order ranks end.

    rank 0 ── pipe ──┐
    rank 1 ── pipe ──┤ selector ──> TaggedOutput
    rank 1 ── pidfd ─┘    └── ended: [1, ...]

It waits for pipes, pidfds and one wake-up socket at once. A stream is closed by `drain`, not by its end alone: the
launcher may hold the writing end open, and so may processes that the rank has left running in the background.
"""

import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

from headrace.launch.output import TaggedOutput

_CHUNK = 1 << 16
_CHUNKS_IN_PIPE = 64


class OutputReader:
    def __init__(self, output: TaggedOutput) -> None:
        self.output = output
        self.ended: list[int] = []  # ranks of this attempt, in the order of their end
        self._streams: dict[int, tuple[int, str]] = {}  # reading end -> rank, name
        self._watched: dict[int, int] = {}  # pidfd -> rank
        self._requests: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._running = True
        self._thread = threading.Thread(target=self._run, name="headrace-output", daemon=True)
        self._thread.start()

    def stream(self, rank: int, name: str) -> int:
        """A new pipe for the rank's stdout or stderr: the writing end, which the caller closes."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)

        def add() -> None:
            self._streams[reading] = (rank, name)
            self._selector.register(reading, selectors.EVENT_READ)

        self._ask(add)
        return writing

    def watch(self, pids: dict[int, int]) -> None:
        """Note the order in which these processes (rank -> pid) end; where the system has no pidfd, do nothing."""
        if not hasattr(os, "pidfd_open"):
            return

        def add() -> None:
            self.ended.clear()
            for rank, pid in pids.items():
                try:
                    fd = os.pidfd_open(pid)
                except ProcessLookupError:  # already ended and reaped
                    self.ended.append(rank)
                    continue
                self._watched[fd] = rank
                self._selector.register(fd, selectors.EVENT_READ)

        self._ask(add)

    def drain(self) -> None:
        """Show all that was written until now, end all streams, and note all processes that have ended."""
        self._ask(self._drain)

    def close(self) -> None:
        if not self._running:
            return

        def stop() -> None:
            self._drain()
            self._running = False

        self._ask(stop)
        self._thread.join()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _ask(self, request: Callable[[], None]) -> None:
        """Have the thread do it, and wait until it is done."""
        done = threading.Event()

        def serve() -> None:
            try:
                request()
            finally:
                done.set()

        self._requests.append(serve)
        self._wake.send(b"!")
        done.wait()

    def _run(self) -> None:
        while self._running:
            for key, _ in self._selector.select():
                fd = key.fd
                if fd == self._woken.fileno():
                    self._woken.recv(_CHUNK)
                elif fd in self._streams:
                    self._read(fd)
                elif fd in self._watched:
                    self._note(fd)
            while self._requests:
                self._requests.popleft()()

    def _read(self, fd: int) -> bool:
        """Pass one chunk on; False when there is none now."""
        rank, name = self._streams[fd]
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._end(fd)
            return False
        self.output.feed(rank, name, data, fd)
        return True

    def _end(self, fd: int) -> None:
        self._selector.unregister(fd)
        self.output.finish(*self._streams.pop(fd), fd)
        os.close(fd)

    def _note(self, fd: int) -> None:
        self._selector.unregister(fd)
        self.ended.append(self._watched.pop(fd))
        os.close(fd)

    def _drain(self) -> None:
        for key, _ in self._selector.select(timeout=0):
            if key.fd in self._watched:
                self._note(key.fd)
        for fd in list(self._streams):
            # what a rank left running may write on for ever; what was in the pipe at the end is limited
            for _ in range(_CHUNKS_IN_PIPE):
                if not self._read(fd):
                    break
            if fd in self._streams:
                self._end(fd)
        for fd in list(self._watched):
            self._selector.unregister(fd)
            del self._watched[fd]
            os.close(fd)
