"""Worker processes, from the consumer's side: tickets out, replies in, deaths noticed.

    submit ── sendmsg ──> socket of worker k ──> worker
    wait   <── epoll ──── sockets of all workers, and a pidfd of each: data, or its end

One epoll object for life; no thread, no lock, no polling. The slot of a ticket says in its header at which sample its
worker is, also after its death: two deaths at the same sample make it poison.
"""

import contextlib
import marshal
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire import packets as wire
from headrace.engine.wire.failures import remote
from headrace.engine.wire.messages import READY, RETIRED, STOP, TICKETS, Reply, Ticket
from headrace.engine.workers.deaths import describe_end, describe_work, replaced_because, running_ticket
from headrace.engine.workers.pace import Pace
from headrace.engine.workers.process.launch import WorkerLauncher
from headrace.engine.workers.process.placement import Placement
from headrace.engine.workers.process.start import StartedWorker
from headrace.engine.workers.protocol import Busy
from headrace.engine.workers.remote import RemoteWorker, RemoteWorkers, reply_to
from headrace.memory.arena import Slot

IN_MESSAGE = 48 * 1024
FDS = 32
"""The most descriptors in one message."""
PATIENCE = 0.5
"""Seconds that workers have to end, all together; what a sample is writing then is cut off."""

Outgoing = tuple[tuple[Any, ...], Sequence[int]]
"""The fields of a `messages.SentTicket`, and the descriptors that are sent with it."""


class WorkerProcess(RemoteWorker):
    """One worker process: its socket, and the tickets that it was given and has not answered."""

    __slots__ = ("fd", "forget", "known", "new", "outbox", "queue", "started")

    def __init__(self, number: int, started: StartedWorker) -> None:
        super().__init__(number, started.pid)
        self.started = started
        self.fd = started.sock.fileno()
        self.queue: dict[int, Ticket] = {}
        self.outbox: list[Outgoing] = []
        """Submitted, not sent yet."""
        self.known: set[int] = set()
        """Slots that it has mapped, or will have."""
        self.new: dict[int, int] = {}
        """Those of them that it was not told of yet, and their descriptors."""
        self.forget: list[int] = []
        """Those of them that it may let go of."""

    def learn(self, slot: Slot) -> None:
        """It is to know this slot: if it does not have it mapped, the descriptor goes with the next ticket."""
        if slot.number not in self.known:
            self.known.add(slot.number)
            self.new[slot.number] = slot.fd

    def place(self, block: Any) -> tuple[int, ...]:
        """Where it finds the samples of a block."""
        self.learn(block.slot)
        return block.slot.number, *block.slot.table

    def flush(self, short: bool) -> None:
        """Send what was submitted: all tickets in one message, where that is small enough."""
        if self.outbox:
            outbox, self.outbox = self.outbox, []
            self._post(outbox, short)

    def _post(self, outgoing: list[Outgoing], short: bool) -> None:
        message = marshal.dumps((TICKETS, [sent for sent, _ in outgoing], short))
        fds = [fd for _, fds in outgoing for fd in fds]
        if (len(message) > IN_MESSAGE or len(fds) > FDS) and len(outgoing) > 1:
            half = len(outgoing) // 2
            self._post(outgoing[:half], short)
            self._post(outgoing[half:], short)
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

    def leave(self) -> None:
        """Let it end as soon as the batch at hand is done: a file that a sample is writing now is not cut off."""
        with contextlib.suppress(OSError):
            self.started.sock.shutdown(socket.SHUT_RDWR)


class ProcessWorkers(RemoteWorkers[WorkerProcess]):
    """The process kind."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._poll = self._epoll.poll
        self._workers: list[WorkerProcess] = []
        self._by_fd: dict[int, tuple[WorkerProcess, bool]] = {}
        self._pace = Pace(policy)
        self._launcher: WorkerLauncher | None = None

    @property
    def rest(self) -> float:
        return self._pace.rest

    @property
    def ahead(self) -> int:
        return len(self._workers) * self._pace.depth if self._pace.deep else 0

    def _open(self, program: Program) -> None:
        self._placement = Placement(self.arena, program.last.number, self.policy.ordered)
        self._launcher = WorkerLauncher(program, self.policy)
        for number in range(self.policy.workers):
            self._start(number)

    def _start(self, number: int) -> None:
        assert self._launcher is not None
        self._launcher.start(number, self._join, [self._epoll.fileno(), self._wake])

    def _join(self, number: int, started: StartedWorker) -> None:
        worker = WorkerProcess(number, started)
        if number < len(self._workers):
            self._workers[number] = worker
        else:
            self._workers.append(worker)
        self._by_fd[worker.fd] = (worker, False)
        self._by_fd[started.pidfd] = (worker, True)
        self._epoll.register(worker.fd, select.EPOLLIN)
        self._epoll.register(started.pidfd, select.EPOLLIN)

    # --- tickets out --------------------------------------------------------------------------------------------------

    def _choose(self, ticket: Ticket) -> WorkerProcess | None:
        if ticket.strand is not None:
            # A block of a stream feeds all the others: it does not wait until its worker has less to do.
            worker = self._workers[ticket.strand % len(self._workers)]
            ahead = sum(t.strand is not None for t in worker.queue.values())
            return worker if ahead < self.policy.prefetch and not worker.retiring else None
        pin = ticket.pin
        best, load, low = None, self._pace.depth, self._pace.low
        for worker in self._workers if pin is None else (self._workers[pin % len(self._workers)],):
            waiting = len(worker.queue)
            if waiting < load and (waiting <= low or worker.outbox) and not worker.retiring:
                best, load = worker, waiting
        return best

    def _send(self, worker: WorkerProcess, ticket: Ticket) -> None:
        slot = ticket.slot if ticket.slot is not None else self._placement.give(ticket)
        worker.learn(slot)
        payload = self._payload(ticket, worker.place)
        if self.arena.retired:
            self._spread_retired()
        worker.queue[ticket.seq] = ticket
        room = None if ticket.append_to is None else (ticket.append_to.end, slot.table[0])
        # (As `messages.SentTicket`, whose making would cost.)
        sent = (ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, slot.number, ticket.avoid, room)
        if worker.forget or worker.new:
            worker.outbox.append(((*sent, worker.forget, [*worker.new]), [*worker.new.values()]))
            worker.forget, worker.new = [], {}
        else:
            worker.outbox.append(((*sent, (), ()), ()))

    def flush(self) -> None:
        short = self._pace.rest > 0
        for worker in self._workers:
            if worker.outbox:
                worker.flush(short)

    def _spread_retired(self) -> None:
        """Whoever has retired slots mapped lets go of them with the next ticket."""
        gone = self.arena.retired
        for worker in self._workers:
            mine = [n for n in gone if n in worker.known]
            if mine:
                worker.known.difference_update(mine)
                worker.forget += mine
        gone.clear()

    # --- replies in ---------------------------------------------------------------------------------------------------

    def _take(self, events: list[tuple[int, int]]) -> list[Reply]:
        replies: list[Reply] = []
        ended: list[WorkerProcess] = []
        for fd, _ in events:
            worker, is_end = self._by_fd[fd]
            if is_end:
                ended.append(worker)
            else:
                self._receive(worker, replies)
        for worker in ended:
            self._ended(worker, replies)
        if self._waiting:
            self._send_waiting()
            self.flush()
        return replies

    def _receive(self, worker: WorkerProcess, replies: list[Reply]) -> bool:
        """One message; False when there is none."""
        came = worker.receive()
        if came is None:
            return False
        messages, fds = came
        if not messages:
            if self._by_fd.pop(worker.fd, None) is not None:
                self._epoll.unregister(worker.fd)
            return False
        for message in messages:
            self._handle_message(worker, message, fds, replies)
        return True

    def _handle_message(
        self, worker: WorkerProcess, message: tuple[Any, ...], fds: list[int], replies: list[Reply]
    ) -> None:
        kind, seq = message[0], message[1]
        if kind == READY:
            worker.ready = self._was_ready = True
            return
        if kind == RETIRED:
            worker.retiring = True
        elif seq == -1:
            raise remote(*message[2])
        else:
            ticket = worker.queue.pop(seq)
            replies.append(self._reply(worker, ticket, kind, message[2], message[3], fds))
        if worker.retiring and not worker.queue:
            worker.stop()

    def _reply(
        self,
        worker: WorkerProcess,
        ticket: Ticket,
        kind: int,
        result: tuple[object, ...],
        held: tuple[int, ...],
        fds: list[int],
    ) -> Reply:
        slot = self._placement.moved(ticket, fds[0]) if fds else ticket.slot
        reply = reply_to(ticket, kind, result, slot, worker.number)
        if reply.slot is None:
            self._placement.take_back(ticket)
        elif ticket.append_to is not None:
            self._placement.made(ticket, reply.spans[0])
        ticket.slot = None
        self._deaths.survived(ticket)
        if reply.state is not None and ticket.strand is not None:
            self._strands.note(ticket, reply.state)
        for number in held:
            for block, *_ in ticket.payload[0]:
                if block.slot.number == number:
                    block.slot.spoiled = True
        if reply.seconds and self.policy.stretch and ticket.strand is None:
            self._pace.learn(reply.seconds[0])
        return reply

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _ended(self, worker: WorkerProcess, replies: list[Reply]) -> None:
        noticed = time.perf_counter()
        while self._receive(worker, replies):
            pass  # what it said before it died still counts
        lost = list(worker.queue.values())
        status = self._remove(worker)
        self._room_again = True
        if worker.retiring and not lost:
            self._start(worker.number)
            return
        why = replaced_because(self.policy.timeout) if worker.replaced else describe_end(status)
        running, at = running_ticket(lost) or (None, None)
        # (Killed from outside says nothing about the program: that counts among the restarts only.)
        early = not worker.ready and status != -signal.SIGKILL
        self._count_death(worker, why, lost, running, early=early)
        if running is not None:
            self._deaths.blame(running, at, why)
        self._start(worker.number)
        self._recovered(worker, why, lost, noticed)

    def _remove(self, worker: WorkerProcess) -> int | None:
        # (First: a worker whose end is not asked for, because an interrupt came before, would be a zombie.)
        status = self.exits[worker.pid] = worker.started.status()
        for fd in (worker.fd, worker.started.pidfd):
            if self._by_fd.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        worker.started.close()
        return status

    def replace(self, number: int) -> bool:
        worker = self._workers[number]
        worker.replaced = True
        worker.started.kill()  # its end is handled like any other
        return True

    def stuck(self) -> list[Busy]:
        return [Busy(w.number, w.pid, describe_work(w.queue.values(), self.program)) for w in self._workers if w.queue]

    def stack(self, number: int) -> str:
        from headrace.engine.workers.process.stacks import stack_of

        started = self._workers[number].started
        return stack_of(started.pidfd, started.dump)

    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def running(self) -> int:
        return len(self._waiting) + sum([len(worker.queue) for worker in self._workers])

    def _withdraw(self, ticket: Ticket) -> None:
        self._placement.take_back(ticket)

    def _end(self) -> None:
        alive = list({id(w): w for w, _ in self._by_fd.values()}.values())
        for worker in alive:
            if worker.ready or not worker.queue:
                worker.leave()
            else:
                worker.started.kill()
        deadline = time.monotonic() + PATIENCE
        for worker in alive:
            if not wire.readable(worker.started.pidfd, max(0.0, deadline - time.monotonic())):
                worker.started.kill()
                wire.readable(worker.started.pidfd, None)
            self._remove(worker)
        self._workers.clear()
        self._waiting.clear()
        self.arena.clear()
        if self._polling:
            os.eventfd_write(self._wake, 1)
        elif not self._epoll.closed:
            self._epoll.close()
            os.close(self._wake)
        if self._launcher is not None:
            self._launcher.close()
