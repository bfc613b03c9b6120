"""Ray actors as workers: tickets out as actor calls, replies back through the object store, deaths of actors and nodes.

    submit ── deliver(tickets) ──> actor k ──> one object with everything: fetched, copied into a slot, freed
           ── keep(ticket) ──────> actor k ──> a small reply, and the samples: they stay in the store, and the actor
                                               that runs the next stage fetches them without passing by here
    wait   <── ray.wait ────────── results of all calls

The cluster is the one this process is connected to; if there is none, Ray looks for one (`RAY_ADDRESS`) or starts one
on this machine, and the connection ends when the last set of workers is closed.

**What arrives is copied once, out of the store into a slot** of the consumer's own arena. Ray's views are read-only, and
its memory is given to others when the connection ends while views are still alive; slots are writable, private, and live
as long as somebody looks. The store holds nothing but what is on its way.

**Deaths.** A dead actor's unanswered tickets run again; a replacement starts at once. Samples that stayed in the store
of a dead node are made again from their lineage when somebody asks for them. There is no shared memory to read after a
death: a ticket that ran when its actor died is run once more with a *witness* (an actor beside the consumer) that is
told each position beforehand. Two deaths at the same one make it poison.

Small tickets travel together, so that a call carries some milliseconds of work and never the network alone.
"""

import logging
import os
import pickle
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

try:
    import ray
except ModuleNotFoundError:
    from headrace.errors import missing

    raise missing("ray", "ray") from None
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from headrace.engine import codec
from headrace.engine.arena import HEADER, Arena
from headrace.engine.messages import FAILED, INLINE, MANY, SLOTTED, Reply, Ticket
from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.shipping import ship
from headrace.engine.workers.lineage import Recipe, Remote, recipe
from headrace.engine.workers.process import _CAUSES, EARLY_DEATHS, _remote
from headrace.engine.workers.servant import Servant, Wire
from headrace.errors import PoisonSample, WorkerDied

log = logging.getLogger("headrace")
WORTH_A_CALL = 0.004
"""Seconds of work that one call should carry; a call costs about half a millisecond."""
MOST_TOGETHER = 16
LOSSES = 20
"""How often the samples of one ticket may be lost before it is given up."""
ANSWER = 10.0
"""Seconds for the witness, or for a stack."""
STORE_SHARE = 3
"""A loader's tickets take at most one part in so many of a node's object store."""


class Worker:
    """One actor and what it has to do."""

    __slots__ = ("actor", "calls", "dump", "load", "node", "number", "outbox", "pid", "ready", "retiring", "strands")

    def __init__(self, number: int, actor: Any) -> None:
        self.number = number
        self.actor = actor
        self.calls: dict[Any, Call] = {}
        """In the order in which it runs them."""
        self.outbox: list[Ticket] = []
        self.load = 0
        """Tickets in calls and in the outbox."""
        self.strands = 0
        self.ready = False
        self.retiring = False
        self.pid, self.dump, self.node = 0, -1, ""


class Call:
    """A call under way: its tickets, and where samples will be that stay in the store."""

    __slots__ = ("early", "fetch", "ref", "samples", "tickets", "worker")

    def __init__(self, worker: Worker, ref: Any, tickets: list[Ticket], samples: Any = None) -> None:
        self.worker = worker
        self.ref = ref
        self.tickets = tickets
        self.samples = samples
        self.early: Any = None
        """An answer that came before that of the strand's block before it."""
        self.fetch: tuple[Reply, Remote] | None = None
        """The reply is known; the samples are on their way to the consumer."""


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
        self._seq = 0
        self._pace: dict[int, float] = {}
        self._early = 0
        self._struck: Counter[tuple[int, ...]] = Counter()
        self._lost: Counter[tuple[int, ...]] = Counter()
        self._states: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._homes: dict[tuple[int, int], Worker] = {}
        self._witness: Any = None
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
            stores = [n["Resources"].get("object_store_memory", 0) for n in ray.nodes() if n["Alive"]]
            self.arena.budget = min([policy.memory, *(int(s) // STORE_SHARE for s in stores if s)])
            self._actor = ray.remote(Actor)
            # An actor claims a core where one is free; the others share, so that nobody waits for cores for ever.
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
        if self.running() and any(w.ready for w in self._workers):
            return False
        # Nobody has started yet, or nothing is under way whose end would make the caller ask again: it waits here.
        if len(self._waiting) >= self.policy.prefetch * self.policy.workers:
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
        if ticket.strand is not None or ticket.stage < self._last or _name(ticket) in self._struck:
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
        if _name(ticket) in self._struck:
            witness = self._witness = self._witness or _beside_consumer(Witness)
        return ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid, witness

    def _strand_payload(self, ticket: Ticket) -> Any:
        """A strand goes on where its actor has it open; an actor that has not opens it from the last state known."""
        strand, state = ticket.payload
        known = self._states.get((ticket.epoch, strand))
        if known is not None and known[0] == ticket.number:
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
            if not isinstance(error.cause, ObjectLostError | RayActorError):
                raise
            self._inputs_lost(call, getattr(error.cause, "object_ref_hex", None))
        except (RayActorError, ObjectLostError) as error:
            if call.fetch:
                self._fetch_again(call)
            elif isinstance(error, RayActorError):
                self._ended(call.worker, error, replies)
            else:
                self._again(call)
        else:
            if call.fetch:
                self._fetched(call, answer, replies)
            elif not call.tickets:
                self._started(call, answer)
            else:
                self._answered(call, answer, replies)

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
        strand = call.tickets[0].strand
        if strand is not None and not self._is_next(call):
            call.early = answer
            return
        del worker.calls[call.ref]
        worker.load -= len(call.tickets)
        body, spent = answer
        if call.samples is not None:
            self._kept(call, body, replies)
        else:
            replies += [self._reply(t, reply) for t, reply in zip(call.tickets, body, strict=True)]
        if spent or worker.retiring:
            worker.retiring = True
            if not worker.load:
                self._replace(worker)
                return
        for later in worker.calls.values() if strand is not None else ():
            if later.early is not None and self._is_next(later):
                answer, later.early = later.early, None
                self._answered(later, answer, replies)
                return

    def _is_next(self, call: Call) -> bool:
        """No earlier block of the same strand is still expected."""
        strand = call.tickets[0].strand
        first = next(c for c in call.worker.calls.values() if c.tickets and c.tickets[0].strand == strand)
        return first is call

    def _reply(self, ticket: Ticket, body: Wire) -> Reply:
        reply = Reply(ticket)
        kind = body[0]
        if kind == INLINE:
            _, reply.outputs, alone, reply.skipped, reply.seconds = body
            reply.count = 1 if alone else -1
        elif kind == SLOTTED:
            _, reply.outputs, arrays, alone, reply.skipped, reply.seconds = body
            reply.count = 1 if alone else -1
            raw = [memoryview(array) for array in arrays]
            reply.slot = slot = self.arena.lend(codec.Writer(memoryview(b""), 0, HEADER).need(raw, 0))
            reply.spans = tuple(codec.Writer(slot.view, slot.address, HEADER).write(raw))
        elif kind == MANY:
            _, reply.count, packed, reply.skipped, reply.seconds, _ = body
            self._unpack(reply, packed)
        else:
            _, error, text, reply.seconds = body
            reply.error = _remote(error, text)
            return reply
        pace = self._pace.get(ticket.stage, reply.seconds)
        self._pace[ticket.stage] = pace + (reply.seconds - pace) / 8
        return reply

    def _unpack(self, reply: Reply, packed: Any) -> None:
        table, image = packed
        reply.slot = slot = self.arena.lend(image.nbytes)
        slot.view[HEADER : image.nbytes] = memoryview(image)[HEADER:]
        slot.table = table

    def _kept(self, call: Call, body: Wire, replies: list[Reply]) -> None:
        """The samples are in the store: they stay there for the next stage, or come here if it is the consumer's."""
        ticket = call.tickets[0]
        if body[0] == FAILED:
            replies.append(self._reply(ticket, body))
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
            call.fetch = (reply, remote)
            self._calls[call.samples] = call

    def _fetched(self, call: Call, packed: Any, replies: list[Reply]) -> None:
        assert call.fetch is not None
        reply, _ = call.fetch
        reply.outputs = None
        if packed[0] == FAILED:
            reply.error = _remote(packed[1], packed[2])
        else:
            self._unpack(reply, packed)
        replies.append(reply)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _ended(self, worker: Worker, error: RayActorError, replies: list[Reply]) -> None:
        noticed = time.perf_counter()
        lost = self._lose(worker, replies)
        tickets = [ticket for call in lost for ticket in call.tickets] + worker.outbox
        self.deaths += 1
        why, outside = describe_end(error)
        if not worker.ready:
            self._early += 1
            if self._early >= EARLY_DEATHS:
                raise WorkerDied(f"workers end while they start ({why}); {_CAUSES}") from error
        if self.deaths > self.policy.restarts:
            at = f" while it ran {_describe(tickets[0])}" if tickets else ""
            raise WorkerDied(
                f"worker {worker.number} (process {worker.pid}) {why}{at}; {len(tickets)} tickets were with it "
                f"and {self.policy.restarts} restarts are allowed. {_CAUSES}"
            ) from error
        if lost and not outside:
            for ticket in lost[0].tickets:
                self._strike(ticket)
        self._replace(worker)
        log.warning("worker %d %s; a new one takes over, nothing is lost", worker.number, why)
        self._waiting.extendleft(reversed(tickets))
        self.restarts.append((time.perf_counter() - noticed, why))

    def _lose(self, worker: Worker, replies: list[Reply]) -> list[Call]:
        """What a dead actor still owes; what it said before it died counts, blocks of a strand up to a gap."""
        lost: list[Call] = []
        broken: set[int | None] = set()
        for call in list(worker.calls.values()):
            if not call.tickets:
                del worker.calls[call.ref]
                continue
            strand = call.tickets[0].strand
            said, answer = _said(call) if strand not in broken else (False, None)
            self._calls.pop(call.ref, None)
            if said:
                self._answered(call, answer, replies)
            else:
                if strand is not None:
                    broken.add(strand)
                lost.append(call)
        return lost

    def _replace(self, worker: Worker) -> None:
        for strand in [s for s, home in self._homes.items() if home is worker]:
            del self._homes[strand]
        worker.calls.clear()
        ray.kill(worker.actor)
        self._start(worker.number)

    def _again(self, call: Call) -> None:
        """An answer that went with the store of its node: its tickets run again."""
        call.worker.calls.pop(call.ref, None)
        call.worker.load -= len(call.tickets)
        for ticket in call.tickets:
            self._count_loss(_name(ticket))
        self._waiting.extendleft(reversed(call.tickets))

    def _inputs_lost(self, call: Call, which: str | None) -> None:
        for ticket in call.tickets:
            for block, _, _ in ticket.payload[0]:
                if which is None or block.outputs.ref.hex() == which:
                    block.outputs.ref = self._remake(block.outputs.recipe)
        self._again(call)

    def _fetch_again(self, call: Call) -> None:
        assert call.fetch is not None
        _, remote = call.fetch
        self._count_loss(_name(call.tickets[0]))
        call.samples = remote.ref = self._remake(remote.recipe)
        self._calls[call.samples] = call

    def _remake(self, made: Recipe) -> Any:
        """Samples that were lost, made again from what made them; whoever asks for the result waits for it."""
        inputs = [self._remake(i) for i in made.inputs]
        worker = min(self._workers, key=lambda w: (not w.ready, w.load))
        wire = (0, made.stage, made.epoch, made.number, made.payload, made.avoid, None)
        if made.strand:
            return worker.actor.again.remote(wire, made.count)
        return worker.actor.keep.remote(wire, *inputs)[1]

    def _count_loss(self, name: tuple[int, ...]) -> None:
        self._lost[name] += 1
        if self._lost[name] > LOSSES:
            raise WorkerDied(
                f"the samples of ticket {name[2]} of stage {name[0]} in epoch {name[1]} were lost {LOSSES} times; nodes "
                f"of the cluster seem to come and go: look at `ray status`"
            )

    def _strike(self, ticket: Ticket) -> None:
        """The ticket ran when its actor died: the next one is watched; two deaths at the same sample make it poison."""
        name = _name(ticket)
        self._struck[name] += 1
        if ticket.strand is not None:
            if self._struck[name] > 5:
                raise PoisonSample(f"a stream's worker died {self._struck[name]} times in {_describe(ticket)}")
            return
        position = self._witnessed(ticket.seq)
        if position is None:
            return
        self._struck[*name, position] += 1
        if self._struck[*name, position] < 2:
            return
        if self.policy.on_poison == "raise":
            raise PoisonSample(
                f"the sample at position {position} killed its worker twice ({_describe(ticket)}); "
                f"look at it with workers=0, or leave such samples out with on_poison='skip'"
            )
        ticket.avoid = (*ticket.avoid, position)

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
            first = next(iter(worker.calls.values()), None)
            if first is not None:
                what = _describe(first.tickets[0]) if first.tickets else "has not started: is the cluster full?"
                found.append((worker.number, worker.pid, what))
        return found

    def stack(self, worker_number: int) -> str:
        """The Python stack of an actor at this moment, however stuck it is, wherever it is."""
        worker = self._workers[worker_number]
        if not worker.ready:
            return "it has not started"
        there = NodeAffinitySchedulingStrategy(worker.node, soft=False)
        try:
            task = ray.remote(_stack).options(num_cpus=0, scheduling_strategy=there)
            return ray.get(task.remote(worker.pid, worker.dump), timeout=ANSWER)  # type: ignore[no-any-return]
        except (RayError, GetTimeoutError) as error:
            return f"no answer from node {worker.node}: {error}"

    def running(self) -> int:
        return len(self._waiting) + sum(w.load for w in self._workers) + sum(c.fetch is not None for c in self._calls.values())

    def begin(self) -> None:
        """A new epoch: past deaths are forgiven."""
        self.deaths = 0

    def drop(self, owner: Any) -> None:
        """Tickets of an owner that no longer wants them: those not yet sent are forgotten."""
        self._waiting = deque(t for t in self._waiting if t.owner is not owner)
        for worker in self._workers:
            kept = [t for t in worker.outbox if t.owner is not owner]
            worker.load -= len(worker.outbox) - len(kept)
            worker.outbox = kept

    def release(self, slot: Any) -> None:
        self.arena.give_back(slot)

    def close(self) -> None:
        if os.getpid() != self._owner or not self._connected:
            return  # a forked copy: the actors belong to the parent
        self._connected = False
        # Not after the connection has ended: Ray would make a new one to kill with.
        if ray.is_initialized():
            for actor in (*(w.actor for w in self._workers), *filter(None, [self._witness])):
                ray.kill(actor)
        for held in (self._workers, self._calls, self._waiting, self._homes):
            held.clear()  # type: ignore[attr-defined]
        self._shipped = self._witness = None
        _Connection.leave()
