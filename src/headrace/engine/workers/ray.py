"""Ray actors as workers: tickets out as actor calls, replies back through the object store, deaths of actors and nodes.

    submit ── deliver(tickets) ──> actor k ──> one object with everything: fetched, copied into a slot, freed
           ── keep(ticket) ──────> actor k ──> a small reply, and the samples: they stay in the store, and the actor
                                               that runs the next stage fetches them without passing by here
    wait   <── ray.wait ────────── results of all calls

The cluster is the one this process is connected to; if there is none, Ray looks for one (`RAY_ADDRESS`) or starts one
on this machine, and the connection ends when the last set of workers is closed.

**What arrives is copied once, out of the store into a slot** of the consumer's own arena. Ray's views are read-only, and
their memory goes to others when the connection ends, though they are still alive; slots are writable, private, and live
as long as somebody looks. The store holds nothing but what is on its way.

**Deaths.** A dead actor's unanswered tickets run again; a replacement starts at once. Samples that stayed in the store
of a dead node are made again from their lineage when somebody asks for them. Who is to blame: see `workers.blame`.

Small tickets travel together, so that a call carries some milliseconds of work and never the network alone.
"""

import logging
import os
import pickle
import threading
import time
from collections import Counter, deque
from typing import Any

try:
    import ray
except ModuleNotFoundError:
    from headrace.errors import missing

    raise missing("ray", "ray") from None
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from headrace.engine import codec
from headrace.engine.arena import Arena
from headrace.engine.messages import FAILED, Reply, Ticket
from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.shipping import ship
from headrace.engine.workers.blame import Blame
from headrace.engine.workers.calls import Call, Worker, describe, fill, name_of, reply_of
from headrace.engine.workers.lineage import Recipe, Remote, recipe
from headrace.engine.workers.process import _CAUSES, EARLY_DEATHS, _remote
from headrace.engine.workers.servant import Servant, Wire
from headrace.engine.workers.stacks import stack_of
from headrace.errors import WorkerDied

log = logging.getLogger("headrace")
WORTH_A_CALL = 0.004
"""Seconds of work that one call should carry; a call costs about half a millisecond."""
MOST_TOGETHER = 16
LOSSES = 20
"""How often the samples of one ticket may be lost before it is given up."""
ANSWER = 10.0
"""Seconds for the witness, or for a stack."""
STORE_SHARE = 3
"""Tickets under way take at most one part in so many of a node's object store."""


class RayWorkers:
    """The ray kind."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.arena = Arena(policy.memory)
        self.deaths = 0
        """Since the epoch began."""
        self.restarts: list[tuple[float, str]] = []
        """Every death so far: seconds until the replacement was started, and how the actor ended."""
        self._owner = os.getpid()
        self._workers: list[Worker] = []
        self._calls: dict[Any, Call] = {}
        """Everything that is waited for."""
        self._waiting: deque[Ticket] = deque()
        self._fetching = 0
        self._seq = 0
        self._pace: dict[int, float] = {}
        self._early = 0
        self._lost: Counter[tuple[int, int, int]] = Counter()
        self._states: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._homes: dict[tuple[int, int], Worker] = {}
        self._witness: Any = None
        self._blame = Blame(policy.on_poison, self._witnessed)
        self._connected = False

    def open(self, program: Program) -> None:
        import numpy as np

        self.program = program
        self._last = program.last.number - (1 if program.assembled else 0)
        self._listed = program.stages[0].feed == "listed"
        policy = self.policy
        extra = {
            "worker_init": policy.worker_init, "recycle": policy.recycle, "recycle_memory": policy.recycle_memory
        }  # fmt: skip
        data, _ = ship(program, extra)
        _Connection.join()
        self._connected = True
        try:
            self._shipped = ray.put(np.frombuffer(data, np.uint8))
            stores = [node["Resources"].get("object_store_memory", 0) for node in ray.nodes() if node["Alive"]]
            self.arena.budget = min([policy.memory, *(int(store) // STORE_SHARE for store in stores if store)])
            self._actor = ray.remote(Actor)
            # An actor claims a core where one is free; the others share, so that nobody waits for a core for ever.
            free = int(ray.available_resources().get("CPU", 0))
            for number in range(policy.workers):
                self._start(number, 1 if number < free else 0)
        except BaseException:
            self.close()
            raise

    def _start(self, number: int, cores: int = 0) -> None:
        actor = self._actor.options(num_cpus=cores, scheduling_strategy="SPREAD").remote()
        worker = Worker(number, actor)
        if number < len(self._workers):
            self._workers[number] = worker
        else:
            self._workers.append(worker)
        ref = actor.start.remote(self._shipped, number)
        worker.calls[ref] = self._calls[ref] = Call(worker, ref, [])

    # --- tickets out --------------------------------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> bool:
        worker = self._choose(ticket)
        if worker is not None:
            self._send(worker, ticket)
            return True
        # While nobody has started, or when nothing is under way whose end makes the caller ask again, it waits here.
        if self.running() and (len(self._waiting) >= self.policy.workers or any(w.ready for w in self._workers)):
            return False
        self._waiting.append(ticket)
        return True

    def _choose(self, ticket: Ticket) -> Worker | None:
        room = self.policy.prefetch * self._together(ticket)
        free = [w for w in self._workers if w.ready and not w.retiring and w.load < room]
        if ticket.strand is not None:
            home = self._homes.get((ticket.epoch, ticket.strand))
            if home is None and free:
                home = self._homes[ticket.epoch, ticket.strand] = min(free, key=lambda w: (w.strands, w.load))
                home.strands += 1
            return home if home in free else None
        if ticket.pin is not None:
            worker = self._workers[ticket.pin % len(self._workers)]
            return worker if worker in free else None
        return min(free, key=lambda w: w.load, default=None)

    def _together(self, ticket: Ticket) -> int:
        """How many such tickets make a call that is worth its cost."""
        if ticket.strand is not None or ticket.stage < self._last or self._blame.watched(ticket):
            return 1
        pace = self._pace.get(ticket.stage)
        return 1 if pace is None else max(1, min(MOST_TOGETHER, int(WORTH_A_CALL / max(pace, 1e-6))))

    def _send(self, worker: Worker, ticket: Ticket) -> None:
        self._seq += 1
        ticket.seq = self._seq
        worker.load += 1
        most = self._together(ticket)
        if most == 1:
            self._call(worker, [ticket])
            return
        worker.outbox.append(ticket)
        if len(worker.outbox) >= most:
            self._flush(worker)

    def _flush(self, worker: Worker) -> None:
        if worker.outbox:
            tickets, worker.outbox = worker.outbox, []
            self._call(worker, tickets)

    def _call(self, worker: Worker, tickets: list[Ticket]) -> None:
        packs: dict[Any, int] = {}
        wires = [self._wire(ticket, packs) for ticket in tickets]
        samples = None
        if tickets[0].strand is not None or tickets[0].stage < self._last:
            ref, samples = worker.actor.keep.remote(wires[0], *packs)
        else:
            ref = worker.actor.deliver.remote(wires, *packs)
        worker.calls[ref] = self._calls[ref] = Call(worker, ref, tickets, samples)

    def _wire(self, ticket: Ticket, packs: dict[Any, int]) -> Wire:
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._strand_payload(ticket)
        elif ticket.blocks:
            refs, base, stride = payload
            wire = [(packs.setdefault(block.outputs.ref, len(packs)), first, stop) for block, first, stop in refs]
            payload = (wire, base, stride)
        elif self._listed:
            payload = pickle.dumps(payload, 5)
        witness = None
        if self._blame.watched(ticket):
            witness = self._witness = self._witness or _beside_the_consumer(Witness)
        return ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid, witness

    def _strand_payload(self, ticket: Ticket) -> Any:
        """A strand goes on where its actor has it open; an actor that has not opens it from the last state known."""
        strand, state = ticket.payload
        known = self._states.get((ticket.epoch, strand))
        if state is None and known is not None and known[0] == ticket.number:
            state = known[1]
        return strand, state if state is None or type(state) is bytes else codec.pack_state(state)

    def _dispatch(self) -> None:
        for _ in range(len(self._waiting)):
            ticket = self._waiting.popleft()
            worker = self._choose(ticket)
            if worker is None:
                self._waiting.append(ticket)
            else:
                self._send(worker, ticket)
        for worker in self._workers:
            self._flush(worker)

    # --- replies in ---------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> list[Reply]:
        """At least one reply, or none when the time is up."""
        until = None if timeout is None else time.monotonic() + timeout
        replies: list[Reply] = []
        while not replies:
            self._dispatch()
            calls = list(self._calls)
            done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
            if not done:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return replies
                done, _ = ray.wait(calls, num_returns=1, timeout=left)
            for ref in done:
                if ref in self._calls:
                    self._take(self._calls.pop(ref), replies)
        return replies

    def _take(self, call: Call, replies: list[Reply]) -> None:
        """A call has ended: with an answer, or with its actor, or because something that it needs is gone."""
        try:
            answer = ray.get(call.samples if call.fetch else call.ref)
        except RayTaskError as error:
            if call.fetch or not isinstance(error.cause, ObjectLostError | RayActorError):
                raise
            self._inputs_lost(call, getattr(error.cause, "object_ref_hex", None))
        except (RayActorError, ObjectLostError) as error:
            if call.fetch:
                self._fetch(call, self._remake(call.fetch[1].recipe))
                self._count_loss(call.tickets[0])
            elif isinstance(error, RayActorError):
                self._ended(call.worker, error, replies)
            else:
                self._again(call)
        else:
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

    def _started(self, call: Call, answer: Wire) -> None:
        worker = call.worker
        del worker.calls[call.ref]
        if answer[0] == FAILED:
            raise _remote(answer[1], answer[2])
        _, worker.pid, worker.dump, worker.node = answer
        worker.ready = True
        self._early = 0

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
                replies.append(reply_of(ticket, said, self.arena))
                self._note_pace(replies[-1])
        worker.retiring = worker.retiring or spent
        if worker.retiring and not worker.load and not worker.gone:
            self._replace(worker)
        later = next((c for c in worker.calls.values() if c.early is not None and c.in_turn), None)
        if later is not None:
            answer, later.early = later.early, None
            self._answered(later, answer, replies)

    def _note_pace(self, reply: Reply) -> None:
        pace = self._pace.setdefault(reply.ticket.stage, reply.seconds)
        self._pace[reply.ticket.stage] = pace + (reply.seconds - pace) / 8

    def _kept(self, call: Call, body: Wire, replies: list[Reply]) -> None:
        """The samples are in the store: they stay there for the next stage, or come here if it is the consumer's."""
        ticket = call.tickets[0]
        if body[0] == FAILED:
            replies.append(reply_of(ticket, body, self.arena))
            return
        reply = Reply(ticket)
        _, reply.count, _, reply.skipped, reply.seconds, extra, size = body
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._strand_payload(ticket)
            reply.ended, reply.state = extra
            self._states[ticket.epoch, ticket.strand] = (ticket.number + 1, reply.state)
        reply.outputs = remote = Remote(call.samples, recipe(ticket, payload, reply.count))
        self.arena.largest = max(self.arena.largest, size)
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

    def _ended(self, worker: Worker, error: RayActorError, replies: list[Reply]) -> None:
        noticed = time.perf_counter()
        worker.gone = True
        lost = self._owed(worker, replies)
        tickets = [ticket for call in lost for ticket in call.tickets] + worker.outbox
        self.deaths += 1
        why = describe_end(error)
        if not worker.ready:
            self._early += 1
            if self._early >= EARLY_DEATHS:
                raise WorkerDied(f"workers end while they start ({why}); {_CAUSES}") from error
        if self.deaths > self.policy.restarts:
            at = f" while it ran {describe(tickets[0])}" if tickets else ""
            raise WorkerDied(
                f"worker {worker.number} (process {worker.pid}) {why}{at}; {len(tickets)} tickets were with it "
                f"and {self.policy.restarts} restarts are allowed. {_CAUSES}"
            ) from error
        if lost and why != LOST_WITH_NODE:
            for ticket in lost[0].tickets:
                self._blame.strike(ticket)
        self._replace(worker)
        log.warning("worker %d %s; a new one takes over, nothing is lost", worker.number, why)
        self._waiting.extendleft(reversed(tickets))
        self.restarts.append((time.perf_counter() - noticed, why))

    def _owed(self, worker: Worker, replies: list[Reply]) -> list[Call]:
        """What a dead actor still owes; what it said before it died counts, blocks of a strand up to a gap."""
        owed: list[Call] = []
        for call in list(worker.calls.values()):
            self._calls.pop(call.ref, None)
            if not call.tickets:
                del worker.calls[call.ref]
            elif call.ref in worker.calls:  # or it was an early one, and has been answered meanwhile
                answer = _said(call) if call.in_turn else None
                if answer is None:
                    owed.append(call)
                else:
                    self._answered(call, answer, replies)
        return owed

    def _replace(self, worker: Worker) -> None:
        for strand in [strand for strand, home in self._homes.items() if home is worker]:
            del self._homes[strand]
        ray.kill(worker.actor)
        self._start(worker.number)

    def _again(self, call: Call) -> None:
        """An answer that went with the store of its node: its tickets run again."""
        del call.worker.calls[call.ref]
        call.worker.load -= len(call.tickets)
        for ticket in call.tickets:
            self._count_loss(ticket)
        self._waiting.extendleft(reversed(call.tickets))

    def _inputs_lost(self, call: Call, which: str | None) -> None:
        for ticket in call.tickets:
            for block, _, _ in ticket.payload[0]:
                if which is None or block.outputs.ref.hex() == which:
                    block.outputs.ref = self._remake(block.outputs.recipe)
        self._again(call)

    def _remake(self, made: Recipe) -> Any:
        """Samples that were lost, made again from what made them; whoever asks for the result waits for it."""
        inputs = [self._remake(below) for below in made.inputs]
        worker = min(self._workers, key=lambda w: (not w.ready, w.load))
        wire = (0, made.stage, made.epoch, made.number, made.payload, made.avoid, None)
        if made.strand:
            return worker.actor.again.remote(wire, made.count)
        return worker.actor.keep.remote(wire, *inputs)[1]

    def _count_loss(self, ticket: Ticket) -> None:
        name = name_of(ticket)
        self._lost[name] += 1
        if self._lost[name] > LOSSES:
            raise WorkerDied(
                f"the samples of {describe(ticket)} were lost {LOSSES} times; nodes of the cluster come and go: "
                f"look at `ray status`"
            )

    def _witnessed(self, seq: int) -> int | None:
        if self._witness is None:
            return None
        try:
            return ray.get(self._witness.last.remote(seq), timeout=ANSWER)  # type: ignore[no-any-return]
        except RayError:
            self._witness = None
            return None

    # --- looking and ending -------------------------------------------------------------------------------------------

    def replace(self, worker_number: int) -> None:
        """Kill an actor that is stuck; its end is handled like any other."""
        ray.kill(self._workers[worker_number].actor)

    def stuck(self) -> list[tuple[int, int, str]]:
        """Actors with unanswered calls: number, pid, what they run."""
        found = []
        for worker in self._workers:
            for call in list(worker.calls.values())[:1]:
                what = describe(call.tickets[0]) if call.tickets else "not started yet: is the cluster full?"
                found.append((worker.number, worker.pid, what))
        return found

    def stack(self, worker_number: int) -> str:
        """The Python stack of an actor at this moment, however stuck it is, wherever it is."""
        worker = self._workers[worker_number]
        if not worker.ready:
            return "it has not started"
        there = NodeAffinitySchedulingStrategy(worker.node, soft=False)
        task = ray.remote(_stack).options(num_cpus=0, scheduling_strategy=there)
        try:
            return ray.get(task.remote(worker.pid, worker.dump), timeout=ANSWER)  # type: ignore[no-any-return]
        except (RayError, GetTimeoutError) as error:
            return f"no answer from node {worker.node}: {error}"

    def running(self) -> int:
        return len(self._waiting) + self._fetching + sum(worker.load for worker in self._workers)

    def begin(self) -> None:
        """A new epoch: past deaths are forgiven."""
        self.deaths = 0

    def drop(self, owner: Any) -> None:
        """Tickets of an owner that no longer wants them: those not yet sent are forgotten."""
        self._waiting = deque(ticket for ticket in self._waiting if ticket.owner is not owner)
        for worker in self._workers:
            worker.load -= len(worker.outbox)
            worker.outbox = [ticket for ticket in worker.outbox if ticket.owner is not owner]
            worker.load += len(worker.outbox)

    def release(self, slot: Any) -> None:
        self.arena.give_back(slot)

    def close(self) -> None:
        if os.getpid() != self._owner or not self._connected:
            return  # a forked copy: the actors belong to the parent
        self._connected = False
        # Not after the connection has ended: Ray would make a new one to kill with.
        if ray.is_initialized():
            for actor in (*(worker.actor for worker in self._workers), *filter(None, [self._witness])):
                ray.kill(actor)
        self._workers.clear()
        self._calls.clear()
        self._waiting.clear()
        self._homes.clear()
        self._shipped = self._witness = None
        _Connection.leave()


class Actor(Servant):
    """A servant as an actor."""

    @ray.method(num_returns=2)
    def keep(self, ticket: Wire, *packs: Any) -> tuple[tuple[Wire, bool], Any]:
        return super().keep(ticket, *packs)

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()  # type: ignore[no-any-return]

    def tell(self, witness: Any, seq: int, position: int) -> None:
        try:
            ray.get(witness.note.remote(seq, position))
        except RayActorError:
            pass  # nobody will be blamed


class Witness:
    """An actor that remembers where others were."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def note(self, seq: int, position: int) -> None:
        self._last[seq] = position

    def last(self, seq: int) -> int | None:
        return self._last.get(seq)


class _Connection:
    """The connection to a cluster, ended by the last user if it was made here."""

    _lock = threading.Lock()
    _users = 0
    _ours = False

    @classmethod
    def join(cls) -> None:
        with cls._lock:
            if not ray.is_initialized():
                ray.init(include_dashboard=False, logging_level=logging.WARNING)
                cls._ours = True
            cls._users += 1

    @classmethod
    def leave(cls) -> None:
        with cls._lock:
            cls._users -= 1
            if cls._users == 0 and cls._ours:
                cls._ours = False
                ray.shutdown()


def _beside_the_consumer(kind: type) -> Any:
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(kind).options(num_cpus=0, scheduling_strategy=here).remote()


def _said(call: Call) -> Any:
    """The answer of a call to an actor that is dead now, if there is one."""
    if call.early is not None:
        return call.early
    if not ray.wait([call.ref], timeout=0)[0]:
        return None
    try:
        return ray.get(call.ref)
    except RayError:
        return None


def _stack(pid: int, dump: int) -> str:
    """Runs beside the actor."""
    pidfd = os.pidfd_open(pid)
    file = os.open(f"/proc/{pid}/fd/{dump}", os.O_RDONLY)
    try:
        return stack_of(pidfd, file)
    finally:
        os.close(pidfd)
        os.close(file)


LOST_WITH_NODE = "was lost with its node"


def describe_end(error: RayActorError) -> str:
    """How an actor ended, in words."""
    text = str(error)
    if "node has died" in text or "node was terminated" in text:
        return LOST_WITH_NODE
    _, found, detail = text.partition("exit detail: ")
    if found:
        return f"ended ({detail.partition('. ')[0]})"
    last = text.strip().rpartition("\n")[2]
    return f"ended ({last.strip().rstrip('.')})"
