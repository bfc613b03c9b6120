"""The server of a shared pool: accepts consumers, passes their tickets to the dispatcher, and sends them its replies.

Only processes of the same user are accepted. A consumer has left when it closes its end or when its process has ended
(a forked copy of it may keep the end open). The server waits for events only; what a consumer does not read is kept for
it and never stops the others. Workers start with the first consumer. If they fail for good, all consumers are told why,
and the next consumer that connects starts new ones.

The server ends with the process that has started it.
"""

import logging
import marshal
import os
import resource
import select
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from headrace.engine.wire import packets as wire
from headrace.engine.wire.failures import failed
from headrace.engine.workers.process import child
from headrace.engine.workers.shared import channel as channel
from headrace.engine.workers.shared.accounts import ConsumerState, PoolSettings
from headrace.engine.workers.shared.dispatcher import Dispatcher

log = logging.getLogger("headrace")


@dataclass(slots=True, eq=False)
class Connection:
    """The connection of one consumer."""

    sock: socket.socket
    pid: int
    pidfd: int
    consumer: ConsumerState | None = None
    """What the dispatcher knows of it, once the program is open."""
    backlog: deque[tuple[bytes, list[int]]] = field(default_factory=deque)
    """Messages that it has not read yet, with descriptors to send along."""

    def close(self) -> None:
        self.sock.close()
        os.close(self.pidfd)
        for _, fds in self.backlog:
            for fd in fds:
                os.close(fd)
        self.backlog.clear()


class PoolServer:
    """The process behind a `SharedPool`."""

    def __init__(self, listener: socket.socket, settings: PoolSettings) -> None:
        self.listener = listener
        self.settings = settings
        self.dispatcher: Dispatcher | None = None
        self.poll = select.epoll()
        self.poll.register(listener, select.EPOLLIN)
        self.connections: dict[int, Connection] = {}
        """Each twice: by its socket, and by its pidfd."""

    def serve(self, ends: list[int]) -> None:
        """Serve until one of the descriptors `ends` is readable."""
        for fd in ends:
            self.poll.register(fd, select.EPOLLIN)
        while True:
            for fd, event in self.poll.poll(self.dispatcher.patience() if self.dispatcher is not None else None):
                if fd in ends:
                    return
                if fd == self.listener.fileno():
                    self._accept()
                elif fd in self.connections:
                    self._event(self.connections[fd], fd, event)
            if self.dispatcher is not None:
                self._work(self.dispatcher)

    def close(self) -> None:
        if self.dispatcher is not None:
            self.dispatcher.close()
        for connection in set(self.connections.values()):
            connection.close()

    def _work(self, dispatcher: Dispatcher) -> None:
        try:
            dispatcher.work()
        except Exception as error:
            self._break(dispatcher, error)
            return
        for connection in set(self.connections.values()):
            if connection.consumer is not None:
                self._send_replies(connection, connection.consumer, dispatcher.workers.gone)
        dispatcher.workers.gone.clear()

    # --- connections --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        sock, _ = self.listener.accept()
        pid, user = channel.peer(sock)
        try:
            pidfd = os.pidfd_open(pid) if user == os.getuid() else -1
        except ProcessLookupError:
            pidfd = -1  # it has ended already
        if pidfd < 0:
            sock.close()
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, channel.SENDING)
        sock.setblocking(False)
        new = Connection(sock, pid, pidfd)
        for fd in (sock.fileno(), pidfd):
            self.connections[fd] = new
            self.poll.register(fd, select.EPOLLIN)

    def _leave(self, gone: Connection) -> None:
        for fd in (gone.sock.fileno(), gone.pidfd):
            self.poll.unregister(fd)
            del self.connections[fd]
        gone.close()
        if gone.consumer is not None and self.dispatcher is not None:
            self.dispatcher.leave(gone.consumer)

    # --- messages in --------------------------------------------------------------------------------------------------

    def _event(self, from_: Connection, fd: int, event: int) -> None:
        if fd == from_.pidfd:
            self._leave(from_)
            return
        if event & select.EPOLLOUT:
            self._flush(from_)
        while True:
            try:
                data, fds = wire.receive(from_.sock)
                for sent in fds:
                    os.close(sent)  # no message of a consumer has any
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            except Exception as error:
                self._refuse(from_, error)
                return
            if not data:
                self._leave(from_)
                return
            try:
                self._handle(from_, marshal.loads(data))
            except Exception as error:
                self._refuse(from_, error)
                return

    def _refuse(self, from_: Connection, error: Exception) -> None:
        """End the connection of a consumer whose message makes no sense. Others are not concerned."""
        log.warning("a message of process %d to the shared pool made no sense (%r): it is cut off", from_.pid, error)
        why = ValueError(f"the shared pool could not make sense of a message of this process: {error!r}")
        self._send(from_, _broken(why))
        self._leave(from_)

    def _handle(self, from_: Connection, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind in (channel.HELLO, channel.PROGRAM):
            self._admit(from_, message)
        elif kind not in (channel.ASK, channel.FREE, channel.DROP):
            self._send(from_, (channel.ANSWER, self._answer(kind, *message[1:])))
        elif self.dispatcher is None or from_.consumer is None:
            pass  # the workers have failed meanwhile: this consumer has not read that yet
        elif kind == channel.ASK:
            for ticket in message[1]:
                self.dispatcher.ask(from_.consumer, ticket)
        elif kind == channel.FREE:
            self.dispatcher.free(from_.consumer, message[1])
        else:
            self.dispatcher.drop(from_.consumer, message[1])

    def _admit(self, from_: Connection, message: tuple[Any, ...]) -> None:
        kind, key, *shipped = message
        if self.dispatcher is None or not self.dispatcher.consumers:
            # The key says nothing of data and functions: workers of earlier consumers serve only the very same program.
            if kind == channel.HELLO:
                self._send(from_, (channel.NEED,))
                return
            if self.dispatcher is not None and self.dispatcher.shipped != shipped[0]:
                self._end(self.dispatcher)
        try:
            dispatcher = self.dispatcher or self._open(key, shipped[0])
            if dispatcher.key != key:
                raise ValueError(
                    "this pool runs another pipe, or the same one with another seed, batch size or options"
                )
        except Exception as error:
            self._send(from_, _broken(error))
            return
        from_.consumer = dispatcher.join(from_.pid)
        self._send(from_, (channel.OPENED,))

    def _open(self, key: str, shipped: bytes) -> Dispatcher:
        dispatcher = self.dispatcher = Dispatcher(key, shipped, self.settings)
        self.poll.register(dispatcher.fileno(), select.EPOLLIN)
        return dispatcher

    def _answer(self, question: int, *about: Any) -> Any:
        dispatcher = self.dispatcher
        if question == channel.COUNT:
            return dispatcher.count() if dispatcher is not None else {"pids": [], "consumers": 0}
        if dispatcher is None:
            return []
        if question == channel.STUCK:
            return [tuple(busy) for busy in dispatcher.workers.stuck()]
        if question == channel.STACK:
            return dispatcher.workers.stack(*about)
        if question == channel.REPLACE:
            return dispatcher.workers.replace(*about)
        raise ValueError(f"{question!r} is no question")

    # --- messages out -------------------------------------------------------------------------------------------------

    def _send_replies(self, to: Connection, consumer: ConsumerState, gone: list[int]) -> None:
        if unmap := [number for number in gone if number in consumer.known]:
            consumer.known.difference_update(unmap)
            self._send(to, (channel.GONE, unmap))
        while consumer.outbox:
            some, consumer.outbox = consumer.outbox[: wire.MOST_FDS], consumer.outbox[wire.MOST_FDS :]
            new: dict[int, int] = {}
            for _, memory in some:
                if memory is not None:
                    number = memory.slot.number
                    consumer.holds[number] += 1
                    if number not in consumer.known:
                        consumer.known.add(number)
                        new[number] = os.dup(memory.slot.fd)
            self._send(to, (channel.REPLIES, [body for body, _ in some], list(new)), list(new.values()))

    def _send(self, to: Connection, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
        to.backlog.append((marshal.dumps(message), fds or []))
        self._flush(to)

    def _flush(self, to: Connection) -> None:
        """Send as much as the consumer takes now; the rest when it reads again."""
        while to.backlog:
            message, fds = to.backlog[0]
            try:
                wire.send(to.sock, message, fds)
            except BlockingIOError:
                self.poll.modify(to.sock, select.EPOLLIN | select.EPOLLOUT)
                return
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has left: that is about to be read
            to.backlog.popleft()
            for fd in fds:
                os.close(fd)
        self.poll.modify(to.sock, select.EPOLLIN)

    def _break(self, dispatcher: Dispatcher, error: Exception) -> None:
        """The workers have failed for good: end them, and tell all consumers why."""
        self._end(dispatcher)
        for connection in set(self.connections.values()):
            if connection.consumer is not None:
                connection.consumer = None
                self._send(connection, _broken(error))

    def _end(self, dispatcher: Dispatcher) -> None:
        self.poll.unregister(dispatcher.fileno())
        self.dispatcher = None
        dispatcher.close()


def _broken(error: Exception) -> tuple[Any, ...]:
    return channel.BROKEN, tuple(failed(error))


def main(starter: int, listener: int, control: int, settings: tuple[Any, ...]) -> None:
    """The server's process."""
    child.reset_signals()
    # Every slot that a consumer holds is a descriptor in this process.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sock = socket.socket(fileno=listener)
    sock.listen(128)  # from now on consumers see this process at the other end (`channel.peer`)
    server = PoolServer(sock, PoolSettings(*settings))
    try:
        server.serve([starter, control])
    finally:
        server.close()
