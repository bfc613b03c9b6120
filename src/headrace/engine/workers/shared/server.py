"""The server of a shared pool: it lets consumers in, hears them, and tells them what the desk has for them.

Only processes of the same user are let in. A consumer is gone when it closes its end or when its process has ended
(a forked copy of it may keep the end open). Nothing is ever waited for but events; what a consumer does not read is
kept for it and never stops the others. Workers start with the first consumer. If they become useless, everybody is
told why, and the next consumer that comes starts new ones.

The server ends with the process that has started it.
"""

import marshal
import os
import resource
import select
import shutil
import socket
import struct
import traceback
from collections import deque
from typing import Any

from headrace.engine.wire import codec
from headrace.engine.wire import packets as wire
from headrace.engine.wire.shipping import unship
from headrace.engine.workers.process import child
from headrace.engine.workers.shared import line as line
from headrace.engine.workers.shared.accounts import Consumer, Settings
from headrace.engine.workers.shared.desk import Desk

_CREDENTIALS = struct.Struct("3i")


class Line:
    """A process that is connected."""

    def __init__(self, sock: socket.socket, pid: int, pidfd: int) -> None:
        self.sock = sock
        self.pid = pid
        self.pidfd = pidfd
        self.consumer: Consumer | None = None
        """Its account at the desk, once the program is settled."""
        self.backlog: deque[tuple[bytes, list[int]]] = deque()
        """What it has not read yet, with descriptors to send along."""

    def close(self) -> None:
        self.sock.close()
        os.close(self.pidfd)
        for _, fds in self.backlog:
            for fd in fds:
                os.close(fd)
        self.backlog.clear()


class Server:
    """The pool."""

    def __init__(self, listener: socket.socket, settings: Settings) -> None:
        self.listener = listener
        self.settings = settings
        self.desk: Desk | None = None
        self.poll = select.epoll()
        self.poll.register(listener, select.EPOLLIN)
        self.lines: dict[int, Line] = {}
        """By socket, and by pidfd."""

    def serve(self, ends: list[int]) -> None:
        """Until one of the descriptors `ends` is readable."""
        for fd in ends:
            self.poll.register(fd, select.EPOLLIN)
        while True:
            for fd, event in self.poll.poll(self.desk.patience() if self.desk is not None else None):
                if fd in ends:
                    return
                if fd == self.listener.fileno():
                    self._accept()
                elif fd in self.lines:
                    self._event(self.lines[fd], fd, event)
            if self.desk is not None:
                self._work(self.desk)

    def close(self) -> None:
        if self.desk is not None:
            self.desk.close()
        for line_ in set(self.lines.values()):
            line_.close()

    def _work(self, desk: Desk) -> None:
        try:
            desk.work()
        except Exception as error:
            self._break(desk, error)
            return
        for line_ in set(self.lines.values()):
            if line_.consumer is not None:
                self._tell(line_, line_.consumer, desk.arena.gone)
        desk.arena.gone.clear()

    # --- who comes and goes -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        pid, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        try:
            pidfd = os.pidfd_open(pid) if user == os.getuid() else -1
        except ProcessLookupError:
            pidfd = -1  # it has gone already
        if pidfd < 0:
            sock.close()
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, line.SENDING)
        sock.setblocking(False)
        new = Line(sock, pid, pidfd)
        for fd in (sock.fileno(), pidfd):
            self.lines[fd] = new
            self.poll.register(fd, select.EPOLLIN)

    def _leave(self, gone: Line) -> None:
        for fd in (gone.sock.fileno(), gone.pidfd):
            self.poll.unregister(fd)
            del self.lines[fd]
        gone.close()
        if gone.consumer is not None and self.desk is not None:
            self.desk.leave(gone.consumer)

    # --- what is heard ------------------------------------------------------------------------------------------------

    def _event(self, from_: Line, fd: int, event: int) -> None:
        if fd == from_.pidfd:
            self._leave(from_)
            return
        if event & select.EPOLLOUT:
            self._push(from_)
        while True:
            try:
                data, _ = wire.receive(from_.sock)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._leave(from_)
                return
            self._heard(from_, marshal.loads(data))

    def _heard(self, from_: Line, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind in (line.HELLO, line.PROGRAM):
            self._hello(from_, message)
        elif kind in (line.ASK, line.FREE, line.DROP):
            # (Else the workers broke meanwhile: it has not read that yet.)
            if self.desk is not None and from_.consumer is not None:
                try:
                    self._wish(self.desk, from_.consumer, kind, message[1])
                except Exception as error:
                    self._break(self.desk, error)
        else:
            self._say(from_, (line.ANSWER, self._answer(kind, *message[1:])))

    def _wish(self, desk: Desk, consumer: Consumer, kind: int, what: Any) -> None:
        if kind == line.ASK:
            for told in what:
                desk.ask(consumer, told)
        elif kind == line.FREE:
            desk.free(consumer, what)
        else:
            desk.drop(consumer, what)

    def _hello(self, from_: Line, message: tuple[Any, ...]) -> None:
        kind, key, *shipped = message
        if self.desk is not None and self.desk.key != key and not self.desk.consumers:
            self._end(self.desk)
        if self.desk is None and kind == line.HELLO:
            self._say(from_, (line.NEED,))
            return
        try:
            desk = self.desk or self._open(key, shipped[0])
            if desk.key != key:
                raise ValueError(
                    "this pool runs another pipe, or the same one with another seed, batch size or options"
                )
        except Exception as error:
            self._say(from_, _broken(error))
            return
        from_.consumer = desk.join(from_.pid)
        self._say(from_, (line.OPENED,))

    def _open(self, key: str, shipped: bytes) -> Desk:
        program, policy = unship(shipped)
        desk = self.desk = Desk(key, program, policy, self.settings)
        self.poll.register(desk.fileno(), select.EPOLLIN)
        return desk

    def _answer(self, question: int, *about: Any) -> Any:
        desk = self.desk
        if question == line.COUNT:
            return desk.count() if desk is not None else {"pids": [], "consumers": 0}
        if desk is None:
            return []
        if question == line.STUCK:
            return desk.workers.stuck()
        return desk.workers.stack(*about) if question == line.STACK else desk.workers.replace(*about)

    # --- what is said -------------------------------------------------------------------------------------------------

    def _tell(self, to: Line, consumer: Consumer, gone: list[int]) -> None:
        if mine := [number for number in gone if number in consumer.known]:
            consumer.known.difference_update(mine)
            self._say(to, (line.GONE, mine))
        while consumer.outbox:
            some, consumer.outbox = consumer.outbox[: wire.MOST_FDS], consumer.outbox[wire.MOST_FDS :]
            new: dict[int, int] = {}
            for _, loan in some:
                if loan is not None:
                    number = loan.slot.number
                    consumer.holds[number] = consumer.holds.get(number, 0) + 1
                    if number not in consumer.known:
                        consumer.known.add(number)
                        new[number] = os.dup(loan.slot.fd)
            self._say(to, (line.TOLD, [body for body, _ in some], list(new)), list(new.values()))

    def _say(self, to: Line, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
        to.backlog.append((marshal.dumps(message), fds or []))
        self._push(to)

    def _push(self, to: Line) -> None:
        """Send as much as the consumer takes now; the rest when it reads again."""
        while to.backlog:
            message, fds = to.backlog[0]
            try:
                wire.send(to.sock, message, fds)
            except BlockingIOError:
                self.poll.modify(to.sock, select.EPOLLIN | select.EPOLLOUT)
                return
            except (BrokenPipeError, ConnectionResetError):
                pass  # it is gone: its end is about to be read
            to.backlog.popleft()
            for fd in fds:
                os.close(fd)
        self.poll.modify(to.sock, select.EPOLLIN)

    def _break(self, desk: Desk, error: Exception) -> None:
        """The workers are of no use any more: everybody is told why."""
        self._end(desk)
        for line_ in set(self.lines.values()):
            if line_.consumer is not None:
                line_.consumer = None
                self._say(line_, _broken(error))

    def _end(self, desk: Desk) -> None:
        self.poll.unregister(desk.fileno())
        self.desk = None
        desk.close()


def _broken(error: Exception) -> tuple[Any, ...]:
    return line.BROKEN, codec.pack_error(error), "".join(traceback.format_exception(error))


def main(folder: str, listener: int, starter: int, control: int, settings: tuple[Any, ...]) -> None:
    """The server's process."""
    child.own_signals()
    # Every slot that somebody holds is a descriptor here, whoever it is.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = Server(socket.socket(fileno=listener), Settings(*settings))
    try:
        server.serve([starter, control])
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
