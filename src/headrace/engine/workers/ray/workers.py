"""Ray actors as workers: tickets out as actor calls, replies back through the object store, deaths of actors and nodes.

    submit ── deliver(tickets) ──> actor k ──> here:      the result is made in a slot that was lent with the ticket
                                               elsewhere: one object with everything: fetched, copied into a slot, freed
           ── keep(ticket) ──────> actor k ──> a small reply, and the samples: they stay in the store, and the actor
                                               that runs the next stage fetches them without passing by here
    wait   <── ray.wait ────────── results of all calls

**An actor on the consumer's node copies nothing**: it makes large results in a slot of the consumer's (`same_node`).
Results from other nodes are copied once, out of the store into a slot. (Ray's own views are read-only, and lose their
memory when the connection ends, even while they are in use; slots are writable, private, and live as long as their
views.) The store holds nothing but what is on its way.

**Deaths.** A dead actor's unanswered tickets run again; a replacement starts at once. Samples that were lost with the
store of a dead node are made again from their lineage when they are needed. Which sample is to blame: `workers.deaths`.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire.failures import remote
from headrace.engine.wire.messages import Failed, Reply, Ticket
from headrace.engine.wire.shipping import ship
from headrace.engine.workers.deaths import replaced_because
from headrace.engine.workers.protocol import Busy
from headrace.engine.workers.ray import cluster as cluster
from headrace.engine.workers.ray import same_node
from headrace.engine.workers.ray.actors import ActorCall, ActorState, Scheduler
from headrace.engine.workers.ray.answers import RayAnswer, RayTicket, copied, reply_of
from headrace.engine.workers.ray.lineage import Recipe, StoredSamples, recipe
from headrace.engine.workers.remote import RemoteWorkers
from headrace.errors import WorkerDied

if TYPE_CHECKING:
    ray: Any
else:
    from headrace.engine.workers.ray.cluster import ray  # with an error that says what to install

LOSSES = 20
"""How often the samples of one ticket may be lost before it is given up."""


class RayWorkers(RemoteWorkers[ActorState]):
    """Workers of kind="ray"."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._poll = self._finished
        self._scheduler = Scheduler(policy)
        self._calls: dict[Any, ActorCall] = {}
        """All calls that are waited for, by what `ray.wait` is asked for."""
        self._need: dict[int, int] = {}
        """Bytes of slots that results were in, by stage."""
        self._losses: Counter[tuple[int, int, int]] = Counter()
        """By stage, epoch and number of a ticket: how often its samples were lost."""
        self._shipped: Any = None
        self._watcher: Any = None
        self._connected = False

    def _open(self, program: Program) -> None:
        policy = self.policy
        self._last = program.last.number - (1 if program.assembled else 0)
        data, _ = ship(program, {name: getattr(policy, name) for name in ("worker_init", "recycle", "recycle_memory")})
        cluster.join()
        self._connected = True
        self._here = cluster.here()
        self._shipped = cluster.put(data)
        self.arena.budget = min(policy.memory, cluster.store())
        # An actor claims a core where one is free; the others share, so that none waits for a core for ever.
        free = cluster.free_cores()
        for number in range(policy.workers):
            self._start(number, cores=1 if number < free else 0)

    def _start(self, number: int, cores: int = 0) -> None:
        worker = ActorState(number, actor=cluster.worker(cores))
        self._scheduler.join(worker)
        ref = worker.actor.start.remote(self._shipped, number)
        worker.calls[ref] = self._calls[ref] = ActorCall(worker, ref, [])

    # --- tickets out --------------------------------------------------------------------------------------------------

    def _choose(self, ticket: Ticket) -> ActorState | None:
        return self._scheduler.choose(ticket, self._alone(ticket))

    def _alone(self, ticket: Ticket) -> bool:
        """Whether a ticket needs a call of its own: its samples stay in the store, or its position is reported."""
        return ticket.strand is not None or ticket.stage < self._last or self._deaths.watched(ticket)

    def _send(self, worker: ActorState, ticket: Ticket) -> None:
        if self._alone(ticket):
            self._call(worker, [ticket])
        else:
            worker.outbox.append(ticket)

    def flush(self) -> None:
        """Send what was submitted, except what is better kept for a fuller call."""
        self._send_waiting()
        for worker in self._scheduler.actors:
            while self._scheduler.due(worker):
                most = self._scheduler.together(worker.outbox[0].stage)
                tickets, worker.outbox = worker.outbox[:most], worker.outbox[most:]
                self._call(worker, tickets)

    def _call(self, worker: ActorState, tickets: list[Ticket]) -> None:
        packs: dict[Any, int] = {}
        wires = [self._wire(ticket, packs) for ticket in tickets]
        samples = None
        if tickets[0].strand is not None or tickets[0].stage < self._last:
            ref, samples = worker.actor.keep.options(num_returns=2).remote(wires[0], *packs)
        else:
            lent = [self._lend(ticket) if worker.same_node else None for ticket in tickets]
            ref = worker.actor.deliver.remote(wires, lent, *packs)
        worker.calls[ref] = self._calls[ref] = ActorCall(worker, ref, tickets, samples)

    def _lend(self, ticket: Ticket) -> same_node.SlotAddress | None:
        """Lend a slot for the result, if results of this stage need one."""
        need = self._need.get(ticket.stage)
        if need is None:
            return None
        ticket.slot = self.arena.lend(need)
        return same_node.slot_address(ticket.slot)

    def _take_back(self, ticket: Ticket) -> None:
        """Take the slot from a ticket that will run again. It is not used again: a lost actor may still write to it."""
        if ticket.slot is not None:
            ticket.slot.spoiled = True
            self.arena.give_back(ticket.slot)
            ticket.slot = None

    def _wire(self, ticket: Ticket, packs: dict[Any, int]) -> RayTicket:
        payload = self._payload(ticket, lambda block: (packs.setdefault(block.outputs.ref, len(packs)),))
        watcher = None
        if self._deaths.watched(ticket):
            watcher = self._watcher = self._watcher or cluster.watcher()
        return RayTicket(ticket.seq, ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid, watcher)

    # --- replies in ---------------------------------------------------------------------------------------------------

    def _finished(self, seconds: float | None) -> list[Any]:
        calls = list(self._calls)
        if seconds != 0 and calls:
            ray.wait(calls, num_returns=1, timeout=seconds)
        return ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else []

    def _take(self, events: list[Any]) -> list[Reply]:
        replies: list[Reply] = []
        for ref in events:
            call = self._calls.get(ref)
            # (A block of a strand waits here until the block before it has come.)
            if call is not None and call.in_turn:
                del self._calls[ref]
                self._taken(call, replies)
        self.flush()
        return replies

    def _taken(self, call: ActorCall, replies: list[Reply]) -> None:
        try:
            answer = ray.get(call.samples if call.fetch else call.ref)
        except ray.exceptions.RayError as error:
            self._failed(call, error, replies)
            return
        if reply := call.fetch:
            table, image = answer
            reply.outputs, reply.slot = None, copied(image, self.arena)
            reply.slot.table = (*table, reply.ticket.seq)
            replies.append(reply)
        elif call.tickets:
            self._answered(call, answer, replies)
        else:
            self._started(call, answer)

    def _failed(self, call: ActorCall, error: object, replies: list[Reply]) -> None:
        """Handle a call whose actor has died, or whose inputs or results were lost with their node."""
        cause = cluster.loss(error)
        if call.fetch:
            # The actor that was to make the samples again may have had no other call that shows its end.
            for worker in [w for w in self._scheduler.actors if cluster.is_end_of(w.actor, cause)]:
                self._ended(worker, cause, replies)
            self._count_loss(call.tickets[0])
            self._fetch(call, self._remake(call.fetch.outputs.recipe))
        elif cause is not error:
            self._inputs_lost(call, getattr(cause, "object_ref_hex", None))
        elif isinstance(error, ray.exceptions.RayActorError) or call.strand is not None:
            self._ended(call.actor, error, replies)
        else:
            self._again(call)

    def _started(self, call: ActorCall, answer: Any) -> None:
        worker = call.actor
        del worker.calls[call.ref]
        started, worker.node = answer
        if isinstance(started, Failed):
            raise remote(*started)
        _, worker.pid, worker.dump = started
        worker.same_node = worker.node == self._here
        worker.ready = self._was_ready = self._room_again = True

    def _answered(self, call: ActorCall, answer: Any, replies: list[Reply]) -> None:
        worker = call.actor
        del worker.calls[call.ref]
        for ticket in call.tickets:
            self._deaths.survived(ticket)
        body, spent = answer
        if call.samples is not None:
            self._kept(call, body, replies)
        else:
            for ticket, ticket_answer in zip(call.tickets, body, strict=True):
                reply, missed = reply_of(ticket, worker.number, ticket_answer, self.arena)
                worker.same_node = worker.same_node and not missed
                if reply.slot is not None:
                    self._need[ticket.stage] = max(reply.slot.size, self._need.get(ticket.stage, 0))
                replies.append(reply)
                self._scheduler.learn(reply)
        worker.retiring = worker.retiring or spent
        if worker.retiring and not worker.load and not worker.gone:
            self._replace(worker)

    def _kept(self, call: ActorCall, answer: RayAnswer, replies: list[Reply]) -> None:
        """The samples are in the store: they stay there for the next stage, or are fetched if the consumer is next."""
        ticket = call.tickets[0]
        reply, _ = reply_of(ticket, call.actor.number, answer, self.arena)
        if isinstance(answer.result, Failed):
            replies.append(reply)
            return
        payload = ticket.payload
        if ticket.strand is not None:
            payload = self._strands.payload(ticket)
            if reply.state is not None:
                self._strands.note(ticket, reply.state)
        reply.outputs = StoredSamples(call.samples, recipe(ticket, payload, reply.count))
        self.arena.largest = max(self.arena.largest, reply.bytes)
        if ticket.stage < self._last:
            replies.append(reply)
        else:
            call.fetch = reply
            self._fetch(call, call.samples)

    def _fetch(self, call: ActorCall, samples: object) -> None:
        call.samples = samples
        self._calls[samples] = call

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _ended(self, worker: ActorState, error: Exception, replies: list[Reply]) -> None:
        noticed = time.perf_counter()
        worker.gone = True
        lost = self._owed(worker, replies)
        tickets = [ticket for call in lost for ticket in call.tickets] + worker.outbox
        why = replaced_because(self.policy.timeout) if worker.replaced else cluster.describe_end(error)
        if not worker.ready and getattr(error, "actor_init_failed", False):
            raise WorkerDied(f"an actor {why}: headrace has to be installed on every node") from error
        running = tickets[0] if tickets else None
        self._count_death(worker, why, tickets, running, early=not worker.ready, error=error)
        if lost and why != cluster.LOST_WITH_NODE:
            for ticket in lost[0].tickets:
                self._deaths.blame(ticket, cluster.last_seen(self._watcher, ticket.seq), why)
        for ticket in tickets:
            self._take_back(ticket)
        self._replace(worker)
        self._recovered(worker, why, tickets, noticed)

    def _owed(self, worker: ActorState, replies: list[Reply]) -> list[ActorCall]:
        """The calls that a dead actor has not answered. Answers from before its death count; of a strand, those up to
        the first block that is missing."""
        owed: list[ActorCall] = []
        for call in list(worker.calls.values()):
            self._calls.pop(call.ref, None)
            if not call.tickets:
                del worker.calls[call.ref]
            else:
                answer = cluster.answer_before_end(call.ref) if call.in_turn else None
                if answer is None:
                    owed.append(call)
                else:
                    self._answered(call, answer, replies)
        return owed

    def _replace(self, worker: ActorState) -> None:
        cluster.end([worker.actor])
        self._start(worker.number)

    def _again(self, call: ActorCall) -> None:
        """Run the tickets of a call again whose answer was lost with the store of its node."""
        del call.actor.calls[call.ref]
        for ticket in call.tickets:
            self._take_back(ticket)
            self._count_loss(ticket)
        self._waiting.extendleft(reversed(call.tickets))

    def _count_loss(self, ticket: Ticket) -> None:
        name = (ticket.stage, ticket.epoch, ticket.number)
        self._losses[name] += 1
        if self._losses[name] > LOSSES:
            what = f"the samples of {ticket} were lost {LOSSES} times"
            raise WorkerDied(f"{what}; nodes of the cluster come and go: look at `ray status`")

    def _inputs_lost(self, call: ActorCall, which: str | None) -> None:
        for ticket in call.tickets:
            for block, _, _ in ticket.payload[0]:
                if which is None or block.outputs.ref.hex() == which:
                    block.outputs.ref = self._remake(block.outputs.recipe)
        self._again(call)

    def _remake(self, recipe: Recipe) -> Any:
        """Have lost samples made again, and what they are made of: the reference to them."""
        inputs = [self._remake(below) for below in recipe.inputs]
        return cluster.remake(self._scheduler.least_busy().actor, recipe, inputs)

    # --- looking and ending -------------------------------------------------------------------------------------------

    def replace(self, number: int) -> bool:
        actor = self._scheduler.actors[number]
        actor.replaced = True
        cluster.end([actor.actor])  # its end is handled like any other
        return True

    def stuck(self) -> list[Busy]:
        return [Busy(actor.number, actor.pid, actor.doing) for actor in self._scheduler.actors if actor.calls]

    def stack(self, number: int) -> str:
        actor = self._scheduler.actors[number]
        return cluster.stack_of(actor.node, actor.pid, actor.dump) if actor.ready else "it has not started"

    def pids(self) -> list[int]:
        return [worker.pid for worker in self._scheduler.actors if worker.ready]

    def running(self) -> int:
        fetching = sum(call.fetch is not None for call in self._calls.values())
        return fetching + len(self._waiting) + sum(actor.load for actor in self._scheduler.actors)

    def begin(self) -> None:
        super().begin()
        self.arena.retired.clear()  # actors let go of slots by themselves

    def drop(self, owner: object) -> None:
        super().drop(owner)
        for actor in self._scheduler.actors:
            actor.outbox = self._without(actor.outbox, owner)

    def _end(self) -> None:
        if not self._connected:
            return
        self._connected = False
        cluster.end([*(worker.actor for worker in self._scheduler.actors), *filter(None, [self._watcher])])
        self._scheduler = Scheduler(self.policy)
        self._calls.clear()
        self._waiting.clear()
        self.arena.clear()
        self._shipped = self._watcher = None
        cluster.leave()
