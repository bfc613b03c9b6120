"""Remote workers: what all kinds have in common whose tickets travel (processes and Ray actors).

    submit ──> _choose a worker ──> _send                           a kind says how a ticket is sent, what it waits on,
    wait   <── _take <── _poll: replies, and the ends of workers    and what it does with that; the rest is here

One thread submits and waits; another one may close. A worker that dies has its unanswered tickets run again by the
others or by its replacement, which starts at once. Only the ticket that was running is held against anyone (`deaths`).
"""

import logging
import os
import pickle
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire.codec import pack_state
from headrace.engine.wire.failures import remote
from headrace.engine.wire.messages import FAILED, WHOLE, Reply, Ticket
from headrace.engine.workers.deaths import CAUSES, EARLY_DEATHS, Deaths
from headrace.engine.workers.protocol import Restart, Workers
from headrace.errors import Closed, WorkerDied
from headrace.memory.arena import Slot

log = logging.getLogger("headrace")


@dataclass(slots=True, eq=False)
class RemoteWorker:
    """One worker, from the consumer's side."""

    number: int
    pid: int = 0
    ready: bool = False
    retiring: bool = False
    """It has asked to be replaced."""
    replaced: bool = False
    """It was killed because it was stuck."""


class StrandStates:
    """Where each strand of an epoch stands after its last answer, as far as the consumer has been told.

    A strand goes on where a worker has it open. A worker that has not (its predecessor died) opens it from the last
    state known: the one that the ticket brings, out of a snapshot, or else the one that came with the block before.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, bytes]] = {}
        """By epoch and strand: the number of its next block, and the state before that."""

    def payload(self, ticket: Ticket) -> tuple[int, bytes | None]:
        """What is sent: the strand, and its state before the ticket's block as far as that is known."""
        strand, state = ticket.payload
        number, known = self._known.get((ticket.epoch, strand), (-1, None))
        if state is None and number == ticket.number:
            state = known
        return strand, state if state is None or type(state) is bytes else pack_state(state)

    def note(self, ticket: Ticket, state: bytes) -> None:
        """The ticket's block is there, and its strand stands here now."""
        self._known[ticket.epoch, ticket.payload[0]] = (ticket.number + 1, state)

    def clear(self) -> None:
        """A new epoch begins."""
        self._known.clear()


Worker = TypeVar("Worker", bound=RemoteWorker)


class RemoteWorkers(Workers, Generic[Worker]):
    """Workers whose tickets travel."""

    _poll: Callable[[float | None], list[Any]]
    """Wait for events at most so many seconds; None: until there is one."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy.memory)
        self.policy = policy
        self._owner = os.getpid()
        # A loader may be closed by another thread than the one that reads.
        self._lock = threading.RLock()
        self._closed = self._polling = False
        self._seq = 0
        self._waiting: deque[Ticket] = deque()
        """Tickets that were lost, and wait for somebody to run them again."""
        self._room_again = False
        """There may be room where there was none: a worker was replaced, or has got ready."""
        self._epoch_deaths = 0
        """Deaths since the epoch began."""
        self._early_deaths = 0
        self._was_ready = False
        """A worker has been ready: the program can be started, and whoever dies early was killed from outside."""
        self._deaths = Deaths(policy.on_poison)
        self._strands = StrandStates()

    # --- what a kind does ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self, program: Program) -> None:
        """Start; if that fails, `close` is called."""

    @abstractmethod
    def _choose(self, ticket: Ticket) -> Worker | None:
        """Whoever should run the ticket, if there is room there now."""

    @abstractmethod
    def _send(self, worker: Worker, ticket: Ticket) -> None:
        """Give the ticket to this worker."""

    @abstractmethod
    def _take(self, events: list[Any]) -> list[Reply]:
        """The replies that these events bring."""

    @abstractmethod
    def _end(self) -> None:
        """Stop. Called once more when whoever was polling meanwhile has come back."""

    # --- tickets out --------------------------------------------------------------------------------------------------

    def open(self, program: Program) -> None:
        self.program = program
        self._listed = program.stages[0].feed == "listed"
        try:
            self._open(program)
        except BaseException:
            self.close()
            raise

    def submit(self, ticket: Ticket) -> bool:
        if self._closed:
            self._check_open()
        if self._waiting and ticket.strand is not None and any(t.strand == ticket.strand for t in self._waiting):
            return False  # blocks of one strand stay in order
        worker = self._choose(ticket)
        if worker is None:
            return False
        self._seq += 1
        ticket.seq = self._seq
        self._send(worker, ticket)
        return True

    def _payload(self, ticket: Ticket, place: Callable[[Any], tuple[Any, ...]]) -> Any:
        """What travels of a ticket's payload; `place` says where the samples of a block are."""
        if ticket.strand is not None:
            return self._strands.payload(ticket)
        if ticket.blocks:
            refs, base, stride = ticket.payload
            return [(*place(block), first, stop) for block, first, stop in refs], base, stride
        return pickle.dumps(ticket.payload, 5) if self._listed else ticket.payload

    def _send_waiting(self) -> None:
        waiting = self._waiting
        for _ in range(len(waiting)):
            ticket = waiting.popleft()
            worker = self._choose(ticket)
            if worker is None:
                waiting.append(ticket)
            else:
                self._seq += 1
                ticket.seq = self._seq
                self._send(worker, ticket)

    # --- replies in ---------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> list[Reply]:
        until = None if timeout is None else time.monotonic() + timeout
        self._room_again = False
        replies = self.collect(timeout)
        while not replies and not self._room_again:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            replies = self.collect(left)
        return replies

    def collect(self, seconds: float | None = 0.0) -> list[Reply]:
        """The replies that are there, after waiting for any event at most so long."""
        with self._lock:
            self._check_open()
            self.flush()
            self._polling = True
        try:
            events = self._poll(seconds)
        finally:
            self._polling = False
        with self._lock:
            self._check_open()
            return self._take(events)

    def _check_open(self) -> None:
        if self._closed:
            self.close()  # what had to wait for this thread to come back
            raise Closed("this loader was closed while it was being read")

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _count_death(
        self,
        worker: RemoteWorker,
        why: str,
        lost: Sequence[Ticket],
        running: Ticket | None,
        *,
        early: bool,
        error: Exception | None = None,
    ) -> None:
        """A worker has died: too many of these, or workers that never get ready, are an error."""
        self._epoch_deaths += 1
        if early:
            self._early_deaths += 1
            if self._early_deaths >= EARLY_DEATHS and not self._was_ready:
                raise WorkerDied(f"workers end while they start ({why}); {CAUSES}") from error
        if self._epoch_deaths > self.policy.restarts:
            at = f" while it ran {running}" if running is not None else ""
            raise WorkerDied(
                f"worker {worker.number} (process {worker.pid}) {why}{at}; {len(lost)} tickets were with it "
                f"and {self.policy.restarts} restarts are allowed. {CAUSES}"
            ) from error

    def _recovered(self, worker: RemoteWorker, why: str, lost: Sequence[Ticket], noticed: float) -> None:
        """A replacement has started; what the dead one had to do is done by whoever is free."""
        log.warning("worker %d %s; a new one takes over, nothing is lost", worker.number, why)
        self._waiting.extendleft(reversed(lost))
        self.restarts.append(Restart(time.perf_counter() - noticed, why))

    def begin(self) -> None:
        self._epoch_deaths = 0
        self._strands.clear()

    def drop(self, owner: object) -> None:
        self._waiting = deque(self._without(self._waiting, owner))

    def _without(self, tickets: Sequence[Ticket], owner: object) -> list[Ticket]:
        """Those of these tickets, which nobody has begun, that are not this owner's."""
        for ticket in tickets:
            if ticket.owner is owner:
                self._withdraw(ticket)
                ticket.release_inputs()
        return [ticket for ticket in tickets if ticket.owner is not owner]

    def _withdraw(self, ticket: Ticket) -> None:
        """A ticket that was submitted will not be run."""

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked copy: the workers belong to the parent
        with self._lock:
            self._closed = True
            self._end()


def reply_to(ticket: Ticket, kind: int, fields: tuple[Any, ...], slot: Slot | None, worker: int) -> Reply:
    """The reply that a result makes; `slot` is where its arrays or samples lie, if they are here."""
    reply = Reply(ticket)
    reply.worker = worker
    if kind == FAILED:
        reply.faults = ((0, WHOLE, remote(*fields)),)
        return reply
    # (The fields of a `Result`, whose making would cost.)
    reply.outputs, reply.spans, reply.count, reply.bytes, table, strand, reply.skipped, reply.seconds, *about = fields
    faults, reply.counts = about
    if faults:
        reply.faults = [(before, position, remote(*error)) for before, position, error in faults]
    if slot is not None and reply.bytes:
        reply.slot = slot
        if table is not None:
            slot.table = (*table, ticket.seq)
    if strand is not None:
        reply.ended, reply.state = strand
    return reply
