"""Workers that several consumers share, from the side of one consumer: its connection to the server of the pool.

Order, window and snapshots are the consumer's own; only tickets are run by the pool. Where all consumers get the same
stream, a result is copied before the user gets it. A result for this consumer alone is not copied: the user gets views
of memory that the server has lent.
"""

import contextlib
import marshal
import select
import socket
from collections import Counter
from dataclasses import replace
from typing import Any

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire import packets as wire
from headrace.engine.wire.failures import remote
from headrace.engine.wire.messages import Owner, Reply, Ticket
from headrace.engine.wire.shipping import ship
from headrace.engine.workers.protocol import Busy
from headrace.engine.workers.remote import RemoteWorkers, reply_to
from headrace.engine.workers.shared import channel as channel
from headrace.engine.workers.shared.borrowed import BorrowedArena
from headrace.errors import Closed, WorkerDied, WorkerStuck
from headrace.memory.arena import Slot


class SharedWorkers(RemoteWorkers[socket.socket]):
    """Workers of a loader with pool=: all tickets go to the server. (Restarts are counted in the pool's `stats()`.)"""

    arena: BorrowedArena

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.arena = BorrowedArena(policy.memory)
        self._address: str = policy.pool.address
        self._same: bool = policy.pool.same
        self._tickets: dict[int, Ticket] = {}
        self._in_flight: Counter[int] = Counter()
        """Tickets at the server, by stage: one that waits there for other consumers must not stop later stages."""
        self._outbox: list[Ticket] = []
        self._epoch = -1
        self._sock: socket.socket | None = None

    def _open(self, program: Program) -> None:
        sock = self._sock = channel.connect(self._address)
        self._server = channel.peer(sock)[0]
        key = channel.key_of(program)
        self._send_message((channel.HELLO, key))
        channel.await_word(sock, self.policy.timeout)
        answer = self._receive()
        if answer[0] == channel.NEED:
            self._send_message((channel.PROGRAM, key, ship(program, replace(self.policy, pool=None))[0]))
            channel.await_word(sock, self.policy.timeout)
            answer = self._receive()
        if answer[0] == channel.BROKEN:
            raise remote(*answer[1])
        sock.setblocking(False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._poll = lambda seconds: self._readable.poll(None if seconds is None else seconds * 1000)

    # --- tickets out --------------------------------------------------------------------------------------------------

    def _choose(self, ticket: Ticket) -> socket.socket | None:
        full = self._in_flight[ticket.stage] >= self.policy.prefetch * self.policy.workers
        return None if full else self._sock

    def _send(self, worker: socket.socket, ticket: Ticket) -> None:
        self._in_flight[ticket.stage] += 1
        self._outbox.append(ticket)

    def flush(self) -> None:
        """Send the tickets that were submitted, and give back slots that have no views any more."""
        if back := self.arena.take_back():
            self._send_message((channel.FREE, back))
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            for ticket in outbox:
                self._tickets[ticket.seq] = ticket
                self._epoch = ticket.epoch
            self._send_message((channel.ASK, [self._wire(ticket) for ticket in outbox]))

    def _wire(self, ticket: Ticket) -> tuple[Any, ...]:
        payload = self._payload(ticket, lambda block: (-block.slot.number,))
        return ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, ticket.strand, ticket.pin

    # --- replies in ---------------------------------------------------------------------------------------------------

    def _take(self, events: list[Any]) -> list[Reply]:
        replies: list[Reply] = []
        while True:
            try:
                message = self._receive()
            except BlockingIOError:
                return replies
            if message[0] == channel.BROKEN:
                raise remote(*message[1])
            if message[0] == channel.GONE:
                self.arena.forget(message[1])
            else:
                for body in message[1]:
                    self._answered(body, replies)

    def _answered(self, body: tuple[Any, ...], replies: list[Reply]) -> None:
        seq, kind, fields, worker, number = body
        ticket = self._tickets.pop(seq)
        self._in_flight[ticket.stage] -= 1
        if kind == channel.DROPPED:
            assert ticket.owner is not None
            ticket.owner.release_inputs(ticket)
            self._room_again = True
            return
        if kind == channel.PAST_END:
            reply = Reply(ticket)
            reply.outputs, reply.ended = [], True
        else:
            slot = None if number is None else self.arena.borrow(number)
            reply = reply_to(ticket, kind, fields, slot, worker)
            if slot is not None:
                self._make_private(reply, slot)
        replies.append(reply)

    def _make_private(self, reply: Reply, slot: Slot) -> None:
        """Copy a result that the user gets and others may get too; what workers read again stays where it is."""
        ticket = reply.ticket
        if reply.outputs is not None:
            if self._same:
                reply.slot = self.arena.copy_out(slot, reply.bytes)
        elif (self._same or ticket.strand is not None) and ticket.stage == self._last:
            reply.slot = self.arena.copy_out(slot, slot.size)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _send_message(self, message: tuple[Any, ...]) -> None:
        sock = self._sock
        if sock is None:
            raise Closed("this loader is closed; make a new one")
        data = marshal.dumps(message)
        while True:
            try:
                wire.send(sock, data)
                return
            except BlockingIOError:  # the server reads whatever comes, unless it is stopped
                timeout = self.policy.timeout
                if not self._writable.poll(None if timeout is None else timeout * 1000):
                    raise WorkerStuck(f"the server of the shared pool takes nothing for {timeout} seconds") from None
            except (BrokenPipeError, ConnectionResetError):
                raise WorkerDied(channel.ENDED) from None

    def _receive(self) -> Any:
        assert self._sock is not None
        try:
            data, fds = wire.receive(self._sock)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            raise WorkerDied(channel.ENDED)
        message = marshal.loads(data)
        if message[0] == channel.REPLIES:
            for number, fd in zip(message[2], fds, strict=True):
                self.arena.add(number, fd)
        return message

    # --- looking and ending -------------------------------------------------------------------------------------------

    def stuck(self) -> list[Busy]:
        try:
            return [Busy(*busy) for busy in self._ask(channel.STUCK)]
        except WorkerStuck:
            what = f"the server of the pool (process {self._server}) does not answer: is it stopped?"
            return [Busy(-1, self._server, what)]

    def stack(self, number: int) -> str:
        return "" if number < 0 else str(self._ask(channel.STACK, number))

    def replace(self, number: int) -> bool:
        return number >= 0 and bool(self._ask(channel.REPLACE, number))

    def _ask(self, *question: object) -> Any:
        return channel.ask(self._address, *question, timeout=min(channel.SILENCE, self.policy.timeout or 1.0))

    def pids(self) -> list[int]:
        return [] if self._closed else list(channel.ask(self._address, channel.COUNT)["pids"])

    def running(self) -> int:
        return len(self._tickets) + len(self._outbox)

    def drop(self, owner: Owner) -> None:
        self._outbox = self._without(self._outbox, owner)
        if self._sock is not None:
            with contextlib.suppress(WorkerDied):  # a pool that has ended has forgotten them anyway
                self._send_message((channel.DROP, self._epoch))

    def _withdraw(self, ticket: Ticket) -> None:
        self._in_flight[ticket.stage] -= 1

    def _end(self) -> None:
        if self._sock is None:
            return
        if self._polling:
            with contextlib.suppress(OSError):  # the server may have hung up before
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes the reader, who closes the rest
            return
        self._sock.close()
        self._sock = None
        self._tickets.clear()
        self._outbox.clear()
        self.arena.clear()
