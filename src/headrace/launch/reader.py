"""A thread that reads what ranks write, shows it, and notes in which order ranks end.

    rank 0 ── pipe ──┐
    rank 1 ── pipe ──┤ selector ──> TaggedOutput
    rank 1 ── pidfd ─┘    └── ended: [1, ...]

It waits for pipes, pidfds and one wake-up pipe at once. A stream is closed by `drain`, not by its end alone: the
launcher may hold the writing end open, and so may processes that the rank has left running in the background.
"""

import os
import selectors
import threading

from headrace.launch.output import TaggedOutput

_CHUNK = 1 << 16
_CHUNKS_IN_PIPE = 64
_READ = selectors.EVENT_READ


class OutputReader:
    def __init__(self, output: TaggedOutput) -> None:
        self.output = output
        self.ended: list[int] = []  # ranks of this attempt, in the order of their end
        # What a descriptor belongs to is kept beside it: (rank, "stdout"), or the rank alone where it is a process.
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # held while descriptors are added, read or closed, but not while waiting
        self._woken, self._wake = os.pipe()  # closing `_wake` ends the thread
        self._selector.register(self._woken, _READ)
        self._thread = threading.Thread(target=self._run, name="headrace-output", daemon=True)
        self._thread.start()

    def stream(self, rank: int, name: str) -> int:
        """A new pipe for the rank's stdout or stderr: the writing end, which the caller closes."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with self._lock:
            self._selector.register(reading, _READ, (rank, name))
        return writing

    def watch(self, pids: dict[int, int]) -> None:
        """Note the order in which these processes (rank -> pid) end; where the system has no pidfd, do nothing."""
        if not hasattr(os, "pidfd_open"):
            return
        with self._lock:
            self.ended.clear()
            for rank, pid in pids.items():
                try:
                    self._selector.register(os.pidfd_open(pid), _READ, rank)
                except ProcessLookupError:  # already ended and reaped
                    self.ended.append(rank)

    def drain(self) -> None:
        """Show all that was written until now, end all streams, and note all processes that have ended."""
        with self._lock:
            self._handle(self._selector.select(timeout=0))
            for key in list(self._selector.get_map().values()):
                if isinstance(key.data, tuple):
                    # what a rank left running may write on for ever; what was in the pipe at the end is limited
                    for _ in range(_CHUNKS_IN_PIPE):
                        if not self._read(key):
                            break
                if key.data is not None:
                    self._end(key)

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.drain()
        os.close(self._wake)
        self._thread.join()
        self._selector.close()
        os.close(self._woken)

    def _run(self) -> None:
        while True:
            ready = self._selector.select()
            with self._lock:
                if not self._handle(ready):
                    return

    def _handle(self, ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Read from what is ready; False when the reader is being closed."""
        for key, _ in ready:
            if self._selector.get_map().get(key.fd) is not key:
                continue  # drained meanwhile
            if key.data is None:
                return False
            if isinstance(key.data, tuple):
                self._read(key)
            else:
                self.ended.append(key.data)
                self._end(key)
        return True

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Show one chunk; False when there is none now."""
        try:
            data = os.read(key.fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            rank, name = key.data
            self.output.feed(rank, name, data, key.fd)
        else:
            self._end(key)
        return bool(data)

    def _end(self, key: selectors.SelectorKey) -> None:
        if self._selector.get_map().get(key.fd) is key:  # a stream may have come to its end by itself
            self._selector.unregister(key.fd)
            if isinstance(key.data, tuple):
                rank, name = key.data
                self.output.finish(rank, name, key.fd)
            os.close(key.fd)
