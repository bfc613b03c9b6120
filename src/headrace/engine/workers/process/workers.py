"""Worker processes, from the consumer's side: tickets out, replies in, deaths noticed.

    submit ── sendmsg ──> socket of worker k ──> worker
    wait   <── epoll ──── sockets of all workers, and a pidfd of each: data, or its end

One epoll object for life; no thread, no lock, no polling. A worker that dies has its unanswered tickets run again by
the others or by its replacement, which starts at once. Only the ticket that was running is held against anyone: its
slot's header says at which sample. Two deaths at the same sample make it poison.
"""

import logging
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
from headrace.engine.wire.messages import FAILED, INLINE, READY, RETIRED, SLOTTED, Owner, Reply, Ticket
from headrace.engine.workers.deaths import CAUSES, EARLY_DEATHS, Deaths, at_hand, describe_end, doing, replaced_because
from headrace.engine.workers.pace import Pace
from headrace.engine.workers.process.launch import WorkerLauncher
from headrace.engine.workers.process.placement import Placement
from headrace.engine.workers.process.start import Started
from headrace.engine.workers.process.worker import WorkerProcess
from headrace.engine.workers.protocol import Busy, Restart, Workers
from headrace.engine.workers.replies import remote, reply_to
from headrace.engine.workers.strands import StrandStates
from headrace.errors import Closed, WorkerDied
from headrace.memory.arena import Slot

log = logging.getLogger("headrace")


class ProcessWorkers(Workers):
    """The process kind."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.memory)
        self.policy = policy
        self._recent = 0
        """Deaths since the epoch began."""
        self._owner = os.getpid()
        # A loader may be closed by another thread than the one that reads.
        self._lock = threading.RLock()
        self._closed = self._polling = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._workers: list[WorkerProcess] = []
        self._by_fd: dict[int, tuple[WorkerProcess, bool]] = {}
        self._tickets: dict[int, Ticket] = {}
        self._again: deque[Ticket] = deque()
        self._seq = 0
        self._pace = Pace(policy.prefetch)
        self._early = 0
        self._proven = False
        """A worker has been ready: the program can be started, and whoever dies early was killed from outside."""
        self._fresh = False
        """A worker was replaced: there may be room where there was none."""
        self._deaths = Deaths(policy.on_poison)
        self._strands = StrandStates()
        self._launcher: WorkerLauncher | None = None

    @property
    def rest(self) -> float:
        return self._pace.rest

    def open(self, program: Program) -> None:
        self.program = program
        self._listed = program.stages[0].feed == "listed"
        self._placement = Placement(self.arena, program.last.number, self.policy.ordered)
        self._launcher = WorkerLauncher(program, self.policy)
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

    def _join(self, number: int, started: Started) -> None:
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

    def _choose(self, ticket: Ticket) -> WorkerProcess | None:
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

    def _send(self, worker: WorkerProcess, ticket: Ticket) -> None:
        slot = ticket.slot if ticket.slot is not None else self._placement.give(ticket)
        fds: list[int] = []
        new = worker.learn(slot.number, slot.fd, fds)
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._strands.payload(ticket)
        elif ticket.blocks:
            refs, base, stride = payload
            places = []
            for block, first, stop in refs:
                inner: Slot = block.slot
                new += worker.learn(inner.number, inner.fd, fds)
                places.append((inner.number, *inner.table, first, stop))
            payload = (places, base, stride)
        elif self._listed:
            payload = pickle.dumps(payload, 5)
        if self.arena.retired:
            self._spread_retired()
        forget, worker.forget = worker.forget, []
        worker.queue.append(ticket)
        self._tickets[ticket.seq] = ticket
        room = None if ticket.home is None else (ticket.home.end, slot.table[0])
        # (As `messages.Lent`, whose making would cost.)
        told = (ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, slot.number, ticket.avoid, forget, new)
        worker.outbox.append(((*told, room), fds))

    def flush(self) -> None:
        short = self._pace.rest > 0
        for worker in self._workers:
            if worker.outbox:
                worker.flush(short)

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
        ended: list[WorkerProcess] = []
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
            self._hear(worker, message, fds, replies)
        return True

    def _hear(self, worker: WorkerProcess, message: tuple[Any, ...], fds: list[int], replies: list[Reply]) -> None:
        kind, seq = message[0], message[1]
        if kind == READY:
            worker.ready = self._proven = True
            return
        if kind == RETIRED:
            worker.retiring = True
        elif seq == -1:
            raise remote(*message[2])
        else:
            ticket = self._tickets.pop(seq)
            worker.queue.remove(ticket)
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
        if kind in (INLINE, FAILED):
            self._placement.take_back(ticket)
        elif kind == SLOTTED and ticket.home is not None:
            self._placement.made(ticket, reply.spans[0])
        ticket.slot = None
        self._deaths.survived(ticket)
        if reply.state is not None:
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
        lost = list(worker.queue)
        status = self._remove(worker)
        self._fresh = True
        if worker.retiring and not lost:
            self._start(worker.number)
            return
        self._recent += 1
        why = replaced_because(self.policy.timeout) if worker.replaced else describe_end(status)
        if not worker.ready and status != -signal.SIGKILL:
            # (Killed from outside says nothing about the program: that counts among the restarts only.)
            self._early += 1
            if self._early >= EARLY_DEATHS and not self._proven:
                raise WorkerDied(f"workers end while they start ({why}); {CAUSES}")
        found = at_hand(lost)
        if self._recent > self.policy.restarts:
            at = f" while it ran {found[0]}" if found is not None else ""
            raise WorkerDied(
                f"worker {worker.number} (process {worker.started.pid}) {why}{at}; {len(lost)} tickets were with it "
                f"and {self.policy.restarts} restarts are allowed. {CAUSES}"
            )
        if found is not None:
            self._deaths.strike(*found, why)
        self._start(worker.number)
        log.warning("worker %d %s; a new one takes over, nothing is lost", worker.number, why)
        for ticket in lost:
            del self._tickets[ticket.seq]
            self._seq += 1
            ticket.seq = self._seq
            self._again.append(ticket)
        self.restarts.append(Restart(time.perf_counter() - noticed, why))

    def _remove(self, worker: WorkerProcess) -> int | None:
        for fd in (worker.fd, worker.started.pidfd):
            if self._by_fd.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        status = self.exits[worker.started.pid] = worker.started.status()
        worker.started.close()
        return status

    def replace(self, number: int) -> bool:
        worker = self._workers[number]
        worker.replaced = True
        worker.started.kill()  # its end is handled like any other
        return True

    def stuck(self) -> list[Busy]:
        return [Busy(w.number, w.started.pid, doing(w.queue, self.program)) for w in self._workers if w.queue]

    def stack(self, number: int) -> str:
        from headrace.engine.workers.process.stacks import stack_of

        started = self._workers[number].started
        return stack_of(started.pidfd, started.dump)

    def pids(self) -> list[int]:
        return [worker.started.pid for worker in self._workers]

    def running(self) -> int:
        return len(self._tickets) + len(self._again)

    def begin(self) -> None:
        self._recent = 0
        self._strands.clear()

    def drop(self, owner: Owner) -> None:
        for ticket in self._again:
            if ticket.owner is owner:
                self._placement.take_back(ticket)
                owner.let_go(ticket)
        self._again = deque(t for t in self._again if t.owner is not owner)

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
                worker.stop()
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
