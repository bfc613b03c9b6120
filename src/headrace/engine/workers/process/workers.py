"""Worker processes, from the consumer's side: tickets out, replies in, deaths noticed.

    submit ── sendmsg ──> socket of worker k ──> worker
    wait   <── epoll ──── sockets of all workers, and a pidfd of each: data, or its end

One epoll object for life; no thread, no lock, no polling. A worker that dies has its unanswered tickets run again by
the others or by its replacement, which starts at once. Only the ticket that was running is held against anyone: its
slot's header says at which sample. Two deaths at the same sample make it poison.
"""

import contextlib
import logging
import marshal
import os
import pickle
import select
import signal
import threading
import time
from collections import deque
from typing import Any

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire import codec
from headrace.engine.wire import packets as wire
from headrace.engine.wire.messages import INLINE, MANY, READY, RETIRED, SLOTTED, STOP, TICKETS, Reply, Ticket
from headrace.engine.workers.deaths import Deaths, describe, doing, running
from headrace.engine.workers.pace import Pace
from headrace.engine.workers.process import start
from headrace.engine.workers.process.launch import Launcher
from headrace.engine.workers.process.placement import Lodging
from headrace.engine.workers.remote import CAUSES, describe_end, remote
from headrace.errors import Closed, WorkerDied
from headrace.memory.arena import Arena, Slot

log = logging.getLogger("headrace")
IN_MESSAGE = 48 * 1024
FDS = 32
"""The most descriptors in one message."""
EARLY_DEATHS = 3
"""Deaths before any worker was ready, after which starting is given up."""


class Worker:
    """One worker process and what it has to do."""

    __slots__ = ("fd", "forget", "known", "number", "outbox", "queue", "ready", "retiring", "started")

    def __init__(self, number: int, started: start.Started) -> None:
        self.number = number
        self.started = started
        self.fd = started.sock.fileno()
        self.queue: deque[Ticket] = deque()
        self.outbox: list[tuple[Any, list[int]]] = []
        """Submitted, not sent yet."""
        self.known: set[int] = set()
        self.forget: list[int] = []
        self.ready = False
        self.retiring = False


class ProcessWorkers:
    """The process kind."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.arena = Arena(policy.memory)
        self.deaths = 0
        """Since the epoch began."""
        self.restarts: list[tuple[float, str]] = []
        """Every death so far: seconds until the replacement was started, and how the worker ended."""
        self._owner = os.getpid()
        # A loader may be closed by another thread than the one that reads.
        self._lock = threading.RLock()
        self._closed = self._polling = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._workers: list[Worker] = []
        self._by_fd: dict[int, tuple[Worker, bool]] = {}
        self._tickets: dict[int, Ticket] = {}
        self._again: deque[Ticket] = deque()
        self._seq = 0
        self._pace = Pace(policy.prefetch)
        self._early = 0
        self._proven = False
        """A worker has been ready: the program can be started, and whoever dies early was killed from outside."""
        self._fresh = False
        """A worker was replaced: there may be room where there was none."""
        self._blame = Deaths(policy.on_poison)
        self._strands: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._launcher: Launcher | None = None

    @property
    def rest(self) -> float:
        """Seconds for which workers need not be looked after."""
        return self._pace.rest

    def open(self, program: Program) -> None:
        self.program = program
        self._listed = program.stages[0].feed == "listed"
        self._lodging = Lodging(self.arena, program.last.number, self.policy.ordered)
        self._launcher = Launcher(program, self.policy)
        try:
            for number in range(self.policy.workers):
                self._start(number)
        except BaseException:
            self.close()
            raise

    def _start(self, number: int) -> None:
        assert self._launcher is not None
        # Only what is open now: the number of a closed descriptor may already belong to something new.
        self._launcher.start(number, self._join, [self._epoll.fileno(), self._wake, *self._by_fd])

    def _join(self, number: int, started: start.Started) -> None:
        worker = Worker(number, started)
        if number < len(self._workers):
            self._workers[number] = worker
        else:
            self._workers.append(worker)
        self._by_fd[worker.fd] = (worker, False)
        self._by_fd[started.pidfd] = (worker, True)
        self._epoll.register(worker.fd, select.EPOLLIN)
        self._epoll.register(started.pidfd, select.EPOLLIN)

    # --- tickets out --------------------------------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> bool:
        if self._closed:
            self._still_open()
        if self._again and ticket.strand is not None and any(t.strand == ticket.strand for t in self._again):
            return False  # blocks of one strand stay in order
        self._seq += 1
        ticket.seq = self._seq
        worker = self._choose(ticket)
        if worker is None:
            return False
        self._send(worker, ticket)
        return True

    def _choose(self, ticket: Ticket) -> Worker | None:
        if ticket.strand is not None:
            # A block of a stream feeds all the others: it does not wait until its worker has less to do.
            worker = self._workers[ticket.strand % len(self._workers)]
            ahead = sum(t.strand is not None for t in worker.queue)
            return worker if ahead < self.policy.prefetch and not worker.retiring else None
        pin = ticket.pin
        best, load, low = None, self._pace.depth, self._pace.low
        for worker in self._workers if pin is None else (self._workers[pin % len(self._workers)],):
            waiting = len(worker.queue)
            if waiting < load and (waiting <= low or worker.outbox) and not worker.retiring:
                best, load = worker, waiting
        return best

    def _send(self, worker: Worker, ticket: Ticket) -> None:
        slot = ticket.slot if ticket.slot is not None else self._lodging.give(ticket)
        known = worker.known
        new: tuple[int, ...] = ()
        fds: list[int] = []
        if slot.number not in known:
            known.add(slot.number)
            new, fds = (slot.number,), [slot.fd]
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._strand_payload(ticket)
        elif ticket.blocks:
            refs, base, stride = payload
            places = []
            for block, first, stop in refs:
                inner: Slot = block.slot
                if inner.number not in known:
                    known.add(inner.number)
                    new, fds = (*new, inner.number), [*fds, inner.fd]
                places.append((inner.number, *inner.table, first, stop))
            payload = (places, base, stride)
        elif self._listed:
            payload = pickle.dumps(payload, 5)
        forget: Any = ()
        if self.arena.retired:
            self._spread_retired()
        if worker.forget:
            forget, worker.forget = worker.forget, []
        worker.queue.append(ticket)
        self._tickets[ticket.seq] = ticket
        room = None if ticket.home is None else (ticket.home.end, slot.table[0])
        told = (ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, slot.number, ticket.avoid, forget, new)
        worker.outbox.append(((*told, room), fds))

    def flush(self) -> None:
        """Send what was submitted: all tickets of one worker in one message, where that is small enough."""
        for worker in self._workers:
            if worker.outbox:
                outbox, worker.outbox = worker.outbox, []
                self._post(worker, outbox)

    def _post(self, worker: Worker, outbox: list[tuple[Any, list[int]]]) -> None:
        message = marshal.dumps((TICKETS, [told for told, _ in outbox], self._pace.rest > 0))
        fds = [fd for _, its in outbox for fd in its]
        if (len(message) > IN_MESSAGE or len(fds) > FDS) and len(outbox) > 1:
            half = len(outbox) // 2
            self._post(worker, outbox[:half])
            self._post(worker, outbox[half:])
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            wire.send(worker.started.sock, message, fds)
        # (Else it has died: its end is about to be read, and its tickets run again.)

    def _strand_payload(self, ticket: Ticket) -> Any:
        """A strand goes on where its worker has it open; a worker that has not opens it from the last state known."""
        strand, state = ticket.payload
        known = self._strands.get((ticket.epoch, strand))
        if known is not None and known[0] == ticket.number:
            state = known[1]
        return strand, state if state is None or type(state) is bytes else codec.pack_state(state)

    def _spread_retired(self) -> None:
        gone = self.arena.retired
        for worker in self._workers:
            mine = [n for n in gone if n in worker.known]
            if mine:
                worker.known.difference_update(mine)
                worker.forget += mine
        gone.clear()

    # --- replies in ---------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> list[Reply]:
        """At least one reply, or none when the time is up or a new worker can take tickets."""
        until = None if timeout is None else time.monotonic() + timeout
        self._fresh = False
        replies = self.collect(-1.0 if timeout is None else timeout)
        while not replies and not self._fresh:
            left = -1.0 if until is None else until - time.monotonic()
            if until is not None and left <= 0:
                break
            replies = self.collect(left)
        return replies

    def collect(self, seconds: float = 0.0) -> list[Reply]:
        """The replies that are there, after waiting for any event at most so long."""
        with self._lock:
            self._still_open()
            self.flush()
            self._polling = True
        try:
            events = self._epoll.poll(seconds)
        finally:
            self._polling = False
        with self._lock:
            self._still_open()
            return self._take(events)

    def _still_open(self) -> None:
        if self._closed:
            self.close()  # what had to wait for this thread to come back
            raise Closed("this loader was closed while it was being read")

    def _take(self, events: list[tuple[int, int]]) -> list[Reply]:
        replies: list[Reply] = []
        ended: list[Worker] = []
        for fd, _ in events:
            worker, is_end = self._by_fd[fd]
            if is_end:
                ended.append(worker)
            else:
                self._receive(worker, replies)
        for worker in ended:
            self._ended(worker, replies)
        if self._again:
            for _ in range(len(self._again)):
                ticket = self._again.popleft()
                target = self._choose(ticket)
                if target is None:
                    self._again.append(ticket)
                else:
                    self._send(target, ticket)
            self.flush()
        return replies

    def _receive(self, worker: Worker, replies: list[Reply]) -> bool:
        """One message; False when there is none."""
        try:
            data, fds = wire.receive(worker.started.sock, wire.NOW)
        except (BlockingIOError, ConnectionResetError):
            return False
        if not data:
            if self._by_fd.pop(worker.fd, None) is not None:
                self._epoll.unregister(worker.fd)
            return False
        for packed in marshal.loads(data):
            self._hear(worker, marshal.loads(packed), fds, replies)
        return True

    def _hear(self, worker: Worker, message: tuple[Any, ...], fds: list[int], replies: list[Reply]) -> None:
        kind, seq = message[0], message[1]
        if kind == READY:
            worker.ready = True
            self._proven = True
            return
        if kind == RETIRED:
            worker.retiring = True
        elif seq == -1:
            raise remote(message[2], message[3])
        else:
            ticket = self._tickets.pop(seq)
            worker.queue.remove(ticket)
            slot = ticket.slot
            if fds:
                slot = self._lodging.moved(ticket, fds[0])
            reply = self._reply(ticket, slot, message)
            reply.worker = worker.number
            if reply.seconds and self.policy.stretch and ticket.strand is None:
                self._pace.learn(reply.seconds[0])
            replies.append(reply)
        if worker.retiring and not worker.queue:
            self._retire(worker)

    def _reply(self, ticket: Ticket, slot: Slot, message: tuple[Any, ...]) -> Reply:
        reply = Reply(ticket)
        kind = message[0]
        if kind == INLINE:
            _, _, reply.outputs, alone, reply.skipped, reply.seconds, _, held = message
            reply.count = 1 if alone else -1
            self._lodging.take_back(ticket)
        elif kind == SLOTTED:
            _, _, reply.outputs, reply.spans, reply.bytes, alone, reply.skipped, reply.seconds, _, held = message
            reply.count = 1 if alone else -1
            reply.slot = slot
            if ticket.home is not None:
                self._lodging.made(ticket, reply.spans[0])
        elif kind == MANY:
            _, _, reply.count, (offset, size), reply.bytes, reply.skipped, reply.seconds, extra, held = message
            slot.table = (offset, size, ticket.seq)
            reply.slot = slot
            if extra is not None:
                reply.ended, reply.state = extra
                strand = ticket.payload[0]
                self._strands[ticket.epoch, strand] = (ticket.number + 1, reply.state)
        else:
            _, _, packed, text, _ = message
            reply.error = remote(packed, text)
            held = ()
            self._lodging.take_back(ticket)
        ticket.slot = None
        for number in held:
            for block, *_ in ticket.payload[0]:
                if block.slot.number == number:
                    block.slot.spoiled = True
        return reply

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _ended(self, worker: Worker, replies: list[Reply]) -> None:
        noticed = time.perf_counter()
        while self._receive(worker, replies):
            pass  # what it said before it died still counts
        lost = list(worker.queue)
        status = self._remove(worker)
        self._fresh = True
        if worker.retiring and not lost:
            self._start(worker.number)
            return
        self.deaths += 1
        why = describe_end(status)
        if not worker.ready and status != -signal.SIGKILL:
            # (Killed from outside says nothing about the program: that counts among the restarts only.)
            self._early += 1
            if self._early >= EARLY_DEATHS and not self._proven:
                raise WorkerDied(f"workers end while they start ({why}); {CAUSES}")
        at_hand = running(lost)
        if self.deaths > self.policy.restarts:
            at = f" while it ran {describe(at_hand)}" if at_hand is not None else ""
            raise WorkerDied(
                f"worker {worker.number} (process {worker.started.pid}) {why}{at}; {len(lost)} tickets were with it "
                f"and {self.policy.restarts} restarts are allowed. {CAUSES}"
            )
        if at_hand is not None:
            self._blame.strike(at_hand, why)
        self._start(worker.number)
        log.warning("worker %d %s; a new one takes over, nothing is lost", worker.number, why)
        for ticket in lost:
            del self._tickets[ticket.seq]
            self._seq += 1
            ticket.seq = self._seq
            self._again.append(ticket)
        self.restarts.append((time.perf_counter() - noticed, why))

    def _retire(self, worker: Worker) -> None:
        with contextlib.suppress(OSError):
            worker.started.sock.send(marshal.dumps((STOP,)))

    def _remove(self, worker: Worker) -> int | None:
        for fd in (worker.fd, worker.started.pidfd):
            if self._by_fd.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        status = worker.started.status()
        worker.started.close()
        return status

    def replace(self, worker_number: int) -> None:
        """Kill a worker that is stuck; its end is handled like any other."""
        self._workers[worker_number].started.kill()

    def stuck(self) -> list[tuple[int, int, str]]:
        """Workers with unanswered tickets: number, pid, what they run."""
        return [(w.number, w.started.pid, doing(w.queue, self.program)) for w in self._workers if w.queue]

    def stack(self, worker_number: int) -> str:
        """The Python stack of a worker at this moment, however stuck it is."""
        from headrace.engine.workers.process.stacks import stack_of

        worker = self._workers[worker_number]
        return stack_of(worker.started.pidfd, worker.started.dump)

    def pids(self) -> list[int]:
        return [worker.started.pid for worker in self._workers]

    def running(self) -> int:
        return len(self._tickets) + len(self._again)

    def begin(self) -> None:
        """A new epoch: past deaths are forgiven."""
        self.deaths = 0

    def drop(self, owner: Any) -> None:
        """Tickets of an owner that no longer wants them: those not yet sent are forgotten."""
        for ticket in self._again:
            if ticket.owner is owner:
                self._lodging.take_back(ticket)
                owner.let_go(ticket)
        self._again = deque(t for t in self._again if t.owner is not owner)

    def release(self, slot: Slot) -> None:
        self.arena.give_back(slot)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked copy: the workers belong to the parent
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._closed = True
        alive = list({id(w): w for w, _ in self._by_fd.values()}.values())
        for worker in alive:
            if not worker.queue:
                self._retire(worker)
            else:
                worker.started.kill()
        deadline = time.monotonic() + 0.5
        for worker in alive:
            poll = select.poll()
            poll.register(worker.started.pidfd, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                worker.started.kill()
                poll.poll()
            self._remove(worker)
        self._workers.clear()
        self._tickets.clear()
        self._again.clear()
        self.arena.clear()
        if self._polling:
            os.eventfd_write(self._wake, 1)
        elif not self._epoll.closed:
            self._epoll.close()
            os.close(self._wake)
        if self._launcher is not None:
            self._launcher.close()
