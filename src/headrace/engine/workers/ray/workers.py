"""Ray actors as workers: tickets out as actor calls, replies back through the object store, deaths of actors and nodes.

    submit ── deliver(tickets) ──> actor k ──> here:      the result is made in a slot that was lent with the ticket
                                               elsewhere: one object with everything: fetched, copied into a slot, freed
           ── keep(ticket) ──────> actor k ──> a small reply, and the samples: they stay in the store, and the actor
                                               that runs the next stage fetches them without passing by here
    wait   <── ray.wait ────────── results of all calls

**An actor on the consumer's node copies nothing**: it makes large results in a slot of the consumer's (`workers.near`).
What comes from elsewhere is copied once, out of the store into a slot. (Ray's views are read-only, and their memory
goes to others when the connection ends, though they are still alive; slots are writable, private, and live as long as
somebody looks.) The store holds nothing but what is on its way.

**Deaths.** A dead actor's unanswered tickets run again; a replacement starts at once. Samples that stayed in the store
of a dead node are made again from their lineage when somebody asks for them. Who is to blame: see `workers.blame`.
"""

import logging
import os
import pickle
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire.messages import FAILED, Reply, Ticket
from headrace.engine.wire.shipping import ship
from headrace.engine.workers.blame import Blame
from headrace.engine.workers.process.workers import EARLY_DEATHS
from headrace.engine.workers.ray import cluster as cluster
from headrace.engine.workers.ray import near
from headrace.engine.workers.ray.calls import Call, Worker, describe, fill, name_of, reply_of
from headrace.engine.workers.ray.lineage import Recipe, Remote, States, recipe
from headrace.engine.workers.ray.roster import Roster
from headrace.engine.workers.ray.servant import Wire
from headrace.engine.workers.remote import CAUSES, remote
from headrace.errors import Closed, WorkerDied
from headrace.memory.arena import Arena

if TYPE_CHECKING:
    ray: Any
else:
    from headrace.engine.workers.ray.cluster import ray  # with an error that says what to install

log = logging.getLogger("headrace")
LOSSES = 20
"""How often the samples of one ticket may be lost before it is given up."""


class RayWorkers:
    """The ray kind."""

    rest = 0.0

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.arena = Arena(policy.memory)
        self.deaths = 0
        """Since the epoch began."""
        self.restarts: list[tuple[float, str]] = []
        """Every death so far: seconds until the replacement was started, and how the actor ended."""
        self._owner = os.getpid()
        self._roster = Roster(policy)
        self._calls: dict[Any, Call] = {}
        """Everything that is waited for."""
        self._fetching = 0
        self._seq = 0
        self._early = 0
        self._proven = False
        """An actor has been ready: the program can be started."""
        self._fresh = False
        """An actor has started: there may be room where there was none."""
        self._need: dict[int, int] = {}
        """Bytes that results took in a slot, by stage."""
        self._lost: Counter[tuple[int, int, int]] = Counter()
        self._states = States()
        self._shipped: Any = None
        self._witness: Any = None
        self._blame = Blame(policy.on_poison)
        self._connected = False

    def open(self, program: Program) -> None:
        self.program = program
        self._last = program.last.number - (1 if program.assembled else 0)
        self._listed = program.stages[0].feed == "listed"
        policy = self.policy
        data, _ = ship(program, {name: getattr(policy, name) for name in ("worker_init", "recycle", "recycle_memory")})
        cluster.join()
        self._connected = True
        try:
            self._here = cluster.here()
            self._shipped = cluster.put(data)
            self.arena.budget = min(policy.memory, cluster.store())
            # An actor claims a core where one is free; the others share, so that nobody waits for a core for ever.
            free = cluster.free_cores()
            for number in range(policy.workers):
                self._start(number, cores=1 if number < free else 0)
        except BaseException:
            self.close()
            raise

    def _start(self, number: int, cores: int = 0) -> None:
        worker = Worker(number, cluster.worker(cores))
        self._roster.join(worker)
        ref = worker.actor.start.remote(self._shipped, number)
        worker.calls[ref] = self._calls[ref] = Call(worker, ref, [])

    # --- tickets out --------------------------------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> bool:
        if ticket.strand is not None and any(other.strand == ticket.strand for other in self._roster.waiting):
            return False  # blocks of one strand stay in order
        worker = self._roster.choose(ticket, self._alone(ticket))
        if worker is None:
            return False
        self._send(worker, ticket)
        return True

    def _alone(self, ticket: Ticket) -> bool:
        return ticket.strand is not None or ticket.stage < self._last or self._blame.watched(ticket)

    def _send(self, worker: Worker, ticket: Ticket) -> None:
        self._seq += 1
        ticket.seq = self._seq
        worker.load += 1
        if self._alone(ticket):
            self._call(worker, [ticket])
        else:
            worker.outbox.append(ticket)

    def flush(self) -> None:
        """Send what was submitted, except what is better kept for a fuller call."""
        waiting = self._roster.waiting
        for _ in range(len(waiting)):
            ticket = waiting.popleft()
            worker = self._roster.choose(ticket, self._alone(ticket))
            if worker is None:
                waiting.append(ticket)
            else:
                self._send(worker, ticket)
        for worker in self._roster.workers:
            while self._roster.due(worker):
                most = self._roster.together(worker.outbox[0].stage)
                tickets, worker.outbox = worker.outbox[:most], worker.outbox[most:]
                self._call(worker, tickets)

    def _call(self, worker: Worker, tickets: list[Ticket]) -> None:
        packs: dict[Any, int] = {}
        wires = [self._wire(ticket, packs) for ticket in tickets]
        samples = None
        if tickets[0].strand is not None or tickets[0].stage < self._last:
            ref, samples = worker.actor.keep.options(num_returns=2).remote(wires[0], *packs)
        else:
            ref = worker.actor.deliver.remote(wires, [self._lend(worker, ticket) for ticket in tickets], *packs)
        worker.calls[ref] = self._calls[ref] = Call(worker, ref, tickets, samples)

    def _lend(self, worker: Worker, ticket: Ticket) -> near.Offer | None:
        """A slot for the result, where the actor can reach it and results of that stage are large."""
        need = self._need.get(ticket.stage)
        if need is None or not worker.near:
            return None
        ticket.slot = self.arena.lend(need)
        return near.offer(ticket.slot)

    def _wire(self, ticket: Ticket, packs: dict[Any, int]) -> Wire:
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._states.payload(ticket)
        elif ticket.blocks:
            refs, base, stride = payload
            places = [(packs.setdefault(block.outputs.ref, len(packs)), first, stop) for block, first, stop in refs]
            payload = (places, base, stride)
        elif self._listed:
            payload = pickle.dumps(payload, 5)
        witness = None
        if self._blame.watched(ticket):
            witness = self._witness = self._witness or cluster.witness()
        return ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid, witness

    # --- replies in ---------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> list[Reply]:
        """At least one reply, or none when the time is up or a new actor can take tickets."""
        until = None if timeout is None else time.monotonic() + timeout
        self._fresh = False
        replies = self.collect()
        while not replies and not self._fresh:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            done, _ = ray.wait(list(self._calls), num_returns=1, timeout=left)
            replies = self._take_all(done)
            self.flush()
        return replies

    def collect(self) -> list[Reply]:
        """The replies that are there."""
        self.flush()
        calls = list(self._calls)
        return self._take_all(ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else [])

    def _take_all(self, done: list[Any]) -> list[Reply]:
        replies: list[Reply] = []
        if not self._connected:
            raise Closed("this loader was closed while it was being read")
        for ref in done:
            if ref in self._calls:
                self._take(self._calls.pop(ref), replies)
        return replies

    def _take(self, call: Call, replies: list[Reply]) -> None:
        try:
            answer = ray.get(call.samples if call.fetch else call.ref)
        except ray.exceptions.RayError as error:
            self._failed(call, error, replies)
            return
        if call.fetch:
            self._fetching -= 1
            reply, _ = call.fetch
            reply.outputs = None
            fill(reply, answer, self.arena)
            replies.append(reply)
        elif call.tickets:
            self._answered(call, answer, replies)
        else:
            self._started(call, answer)

    def _failed(self, call: Call, error: Any, replies: list[Reply]) -> None:
        """A call has ended with its actor, or because something that it needs, or what it made, is gone."""
        cause = cluster.loss(error)
        if call.fetch:
            # Whoever was to make the samples: it may have had nothing else to do, and nobody has noticed its end.
            for worker in [w for w in self._roster.workers if cluster.is_end_of(w.actor, cause)]:
                self._ended(worker, cause, replies)
            self._count_loss(call.tickets[0])
            self._fetch(call, self._remake(call.fetch[1].recipe))
        elif cause is not error:
            self._inputs_lost(call, getattr(cause, "object_ref_hex", None))
        elif isinstance(error, ray.exceptions.RayActorError) or call.strand is not None:
            self._ended(call.worker, error, replies)
        else:
            self._again(call)

    def _started(self, call: Call, answer: Wire) -> None:
        worker = call.worker
        del worker.calls[call.ref]
        if answer[0] == FAILED:
            raise remote(answer[1], answer[2])
        _, worker.pid, worker.dump, worker.node = answer
        worker.near = worker.node == self._here
        worker.ready = self._proven = self._fresh = True

    def _answered(self, call: Call, answer: Any, replies: list[Reply]) -> None:
        worker = call.worker
        if not call.in_turn:
            call.early = answer
            return
        del worker.calls[call.ref]
        worker.load -= len(call.tickets)
        body, spent = answer
        if call.samples is not None:
            self._kept(call, body, replies)
        else:
            for ticket, said in zip(call.tickets, body, strict=True):
                reply = reply_of(ticket, worker, said, self.arena)
                if reply.slot is not None:
                    self._need[ticket.stage] = max(reply.bytes, self._need.get(ticket.stage, 0))
                replies.append(reply)
                self._roster.learn(reply)
        worker.retiring = worker.retiring or spent
        if worker.retiring and not worker.load and not worker.gone:
            self._replace(worker)
        later = next((c for c in worker.calls.values() if c.early is not None and c.in_turn), None)
        if later is not None:
            answer, later.early = later.early, None
            self._answered(later, answer, replies)

    def _kept(self, call: Call, body: Wire, replies: list[Reply]) -> None:
        """The samples are in the store: they stay there for the next stage, or come here if it is the consumer's."""
        ticket = call.tickets[0]
        reply = reply_of(ticket, call.worker, body, self.arena)
        if reply.error is not None:
            replies.append(reply)
            return
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._states.payload(ticket)
            self._states.note(ticket, reply.state)
        reply.outputs = remote = Remote(call.samples, recipe(ticket, payload, reply.count))
        self.arena.largest = max(self.arena.largest, reply.bytes)
        if ticket.stage < self._last:
            replies.append(reply)
        else:
            self._fetching += 1
            call.fetch = (reply, remote)
            self._fetch(call, call.samples)

    def _fetch(self, call: Call, samples: Any) -> None:
        call.samples = samples
        self._calls[samples] = call

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _ended(self, worker: Worker, error: Exception, replies: list[Reply]) -> None:
        noticed = time.perf_counter()
        worker.gone = True
        lost = self._owed(worker, replies)
        tickets = [ticket for call in lost for ticket in call.tickets] + worker.outbox
        self.deaths += 1
        why = cluster.describe_end(error)
        if not worker.ready:
            self._early += 1
            if getattr(error, "actor_init_failed", False):
                raise WorkerDied(f"an actor {why}: headrace has to be installed on every node") from error
            if self._early >= EARLY_DEATHS and not self._proven:
                raise WorkerDied(f"workers end while they start ({why}); {CAUSES}") from error
        if self.deaths > self.policy.restarts:
            at = f" while it ran {describe(tickets[0])}" if tickets else ""
            raise WorkerDied(
                f"worker {worker.number} (process {worker.pid}) {why}{at}; {len(tickets)} tickets were with it "
                f"and {self.policy.restarts} restarts are allowed. {CAUSES}"
            ) from error
        if lost and why != cluster.LOST_WITH_NODE:
            for ticket in lost[0].tickets:
                self._blame.strike(ticket, cluster.witnessed(self._witness, ticket.seq), why)
        for ticket in tickets:
            self._take_slot_back(ticket)
        self._replace(worker)
        log.warning("worker %d %s; a new one takes over, nothing is lost", worker.number, why)
        self._roster.waiting.extendleft(reversed(tickets))
        self.restarts.append((time.perf_counter() - noticed, why))

    def _owed(self, worker: Worker, replies: list[Reply]) -> list[Call]:
        """What a dead actor still owes; what it said before it died counts, blocks of a strand up to a gap."""
        owed: list[Call] = []
        for call in list(worker.calls.values()):
            self._calls.pop(call.ref, None)
            if not call.tickets:
                del worker.calls[call.ref]
            elif call.ref in worker.calls:  # or it was an early one, and has been answered meanwhile
                answer = (call.early or cluster.said(call.ref)) if call.in_turn else None
                if answer is None:
                    owed.append(call)
                else:
                    self._answered(call, answer, replies)
        return owed

    def _replace(self, worker: Worker) -> None:
        cluster.end([worker.actor])
        self._start(worker.number)

    def _again(self, call: Call) -> None:
        """An answer that went with the store of its node: its tickets run again."""
        del call.worker.calls[call.ref]
        call.worker.load -= len(call.tickets)
        for ticket in call.tickets:
            self._take_slot_back(ticket)
            self._count_loss(ticket)
        self._roster.waiting.extendleft(reversed(call.tickets))

    def _take_slot_back(self, ticket: Ticket) -> None:
        """A ticket will run again: nobody else gets its slot, because an actor that is lost may still be writing."""
        if ticket.slot is not None:
            ticket.slot.spoiled = True
            self.arena.give_back(ticket.slot)
            ticket.slot = None

    def _inputs_lost(self, call: Call, which: str | None) -> None:
        for ticket in call.tickets:
            for block, _, _ in ticket.payload[0]:
                if which is None or block.outputs.ref.hex() == which:
                    block.outputs.ref = self._remake(block.outputs.recipe)
        self._again(call)

    def _remake(self, made: Recipe) -> Any:
        """Samples that were lost, made again from what made them; whoever asks for the result waits for it."""
        inputs = [self._remake(below) for below in made.inputs]
        return cluster.remake(self._roster.least_busy().actor, made, inputs)

    def _count_loss(self, ticket: Ticket) -> None:
        self._lost[name_of(ticket)] += 1
        if self._lost[name_of(ticket)] > LOSSES:
            what = f"the samples of {describe(ticket)} were lost {LOSSES} times"
            raise WorkerDied(f"{what}; nodes of the cluster come and go: look at `ray status`")

    # --- looking and ending -------------------------------------------------------------------------------------------

    def replace(self, worker_number: int) -> None:
        """Kill an actor that is stuck; its end is handled like any other."""
        cluster.end([self._roster.workers[worker_number].actor])

    def stuck(self) -> list[tuple[int, int, str]]:
        """Actors with unanswered calls: number, pid, what they run."""
        return [(worker.number, worker.pid, worker.doing) for worker in self._roster.workers if worker.calls]

    def stack(self, worker_number: int) -> str:
        """The Python stack of an actor at this moment, however stuck it is, wherever it is."""
        worker = self._roster.workers[worker_number]
        return cluster.look(worker.node, worker.pid, worker.dump) if worker.ready else "it has not started"

    def pids(self) -> list[int]:
        return [worker.pid for worker in self._roster.workers if worker.ready]

    def running(self) -> int:
        return self._fetching + self._roster.load()

    def begin(self) -> None:
        """A new epoch: past deaths are forgiven."""
        self.deaths = 0
        self.arena.retired.clear()  # actors let go of slots by themselves

    def drop(self, owner: Any) -> None:
        """Tickets of an owner that no longer wants them: those not yet sent are forgotten."""
        self._roster.drop(owner)

    def release(self, slot: Any) -> None:
        self.arena.give_back(slot)

    def close(self) -> None:
        if os.getpid() != self._owner or not self._connected:
            return  # a forked copy: the actors belong to the parent
        self._connected = False
        cluster.end([*(worker.actor for worker in self._roster.workers), *filter(None, [self._witness])])
        self._roster = Roster(self.policy)
        self._calls.clear()
        self.arena.clear()
        self._shipped = self._witness = None
        cluster.leave()
