"""One worker process, from the consumer's side: its socket, and the tickets that it was given and has not answered."""

import contextlib
import marshal
from collections import deque
from typing import Any

from headrace.engine.wire import packets as wire
from headrace.engine.wire.messages import STOP, TICKETS, Ticket
from headrace.engine.workers.process.start import Started

IN_MESSAGE = 48 * 1024
FDS = 32
"""The most descriptors in one message."""

Letter = tuple[tuple[Any, ...], list[int]]
"""A ticket as it is sent (`messages.Lent`), and the descriptors that go with it."""


class WorkerProcess:
    """One worker process and what it has to do."""

    __slots__ = ("fd", "forget", "known", "number", "outbox", "queue", "ready", "replaced", "retiring", "started")

    def __init__(self, number: int, started: Started) -> None:
        self.number = number
        self.started = started
        self.fd = started.sock.fileno()
        self.queue: deque[Ticket] = deque()
        self.outbox: list[Letter] = []
        """Submitted, not sent yet."""
        self.known: set[int] = set()
        """Slots that it has mapped."""
        self.forget: list[int] = []
        """Those of them that it may let go of."""
        self.ready = False
        self.retiring = False
        """It has asked to be replaced."""
        self.replaced = False
        """It was killed because it was stuck."""

    def learn(self, number: int, fd: int, letter_fds: list[int]) -> tuple[int, ...]:
        """The slot's number, if this worker does not have it mapped: then its descriptor goes along."""
        if number in self.known:
            return ()
        self.known.add(number)
        letter_fds.append(fd)
        return (number,)

    def flush(self, short: bool) -> None:
        """Send what was submitted: all tickets in one message, where that is small enough."""
        if self.outbox:
            outbox, self.outbox = self.outbox, []
            self._post(outbox, short)

    def _post(self, letters: list[Letter], short: bool) -> None:
        message = marshal.dumps((TICKETS, [told for told, _ in letters], short))
        fds = [fd for _, its in letters for fd in its]
        if (len(message) > IN_MESSAGE or len(fds) > FDS) and len(letters) > 1:
            half = len(letters) // 2
            self._post(letters[:half], short)
            self._post(letters[half:], short)
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            wire.send(self.started.sock, message, fds)
        # (Else it has died: its end is about to be read, and its tickets run again.)

    def receive(self) -> tuple[list[tuple[Any, ...]], list[int]] | None:
        """The replies of one message, and descriptors that came with it; None: nothing is there now, []: the end."""
        try:
            data, fds = wire.receive(self.started.sock, wire.NOW)
        except (BlockingIOError, ConnectionResetError):
            return None
        return [marshal.loads(packed) for packed in marshal.loads(data)] if data else [], fds

    def stop(self) -> None:
        """Let it end when it has done what it was given."""
        with contextlib.suppress(OSError):
            self.started.sock.send(marshal.dumps((STOP,)))
