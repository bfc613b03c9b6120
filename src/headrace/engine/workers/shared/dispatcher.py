"""The dispatcher of a shared pool: one program, its workers, and which consumer gets which result.

    consumers ──ask──> queue of each ──in turn──> PoolWorkers ─────replies──> consumers that asked
                                                                         └──> cache: results that others still need

A ticket is **common** when several consumers may ask for it: a block of a stream, and, if the consumers want the same
stream, every ticket. A common ticket is run once. Its result stays in the cache until all consumers have taken it or
gone past it. The cache is bounded: a consumer that is ahead waits, for tickets that others need too, until those come
closer. The consumer that is last never waits for others, so there is always one that goes on.

The op that gets a sample may write to it, so no ticket is run twice on the same block.
"""

import time
from dataclasses import replace
from typing import Any

from headrace.engine.policy import Policy
from headrace.engine.wire.failures import failed
from headrace.engine.wire.messages import FAILED, Reply, Ticket
from headrace.engine.wire.unshipping import unship
from headrace.engine.workers.process.workers import ProcessWorkers, WorkerProcess
from headrace.engine.workers.shared import channel as channel
from headrace.engine.workers.shared.accounts import (
    OVER,
    CachedResult,
    ConsumerState,
    PoolRequest,
    PoolSettings,
    ResultKey,
    RunningTicket,
    SharedSlot,
    made_of,
)
from headrace.engine.workers.shared.readings import StreamReading, StreamReadings
from headrace.errors import BadOption


class PoolWorkers(ProcessWorkers):
    """Worker processes whose answers are passed on as they came."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.gone: list[int] = []
        """Slots that will not be used again, of which consumers were not told yet."""

    def spread_retired(self) -> None:
        self.gone += self.arena.retired
        super().spread_retired()

    def _reply(self, worker: WorkerProcess, ticket: Ticket, kind: int, result: tuple[object, ...], *rest: Any) -> Reply:
        assert isinstance(ticket.owner, RunningTicket)
        ticket.owner.answer = (kind, result, worker.number)
        return super()._reply(worker, ticket, kind, result, *rest)


class Dispatcher:
    """Runs the tickets of one program for all consumers."""

    def __init__(self, key: str, shipped: bytes, settings: PoolSettings) -> None:
        program, policy = unship(shipped)
        self.key = key
        self.shipped = shipped
        """The program and the policy, as the first consumer has sent them."""
        self.program = program
        self.settings = settings
        self.consumers: list[ConsumerState] = []
        self.run = self.shared = self.fullest = 0
        self._incomplete = settings.consumers > 1
        """Some consumers have not connected yet."""
        self._until = time.monotonic() + settings.wait
        self._left: set[int] = set()
        self._turn = 0
        self._epoch = -1
        self._slots: dict[int, SharedSlot] = {}
        self._running: dict[ResultKey, RunningTicket] = {}
        self._cache: dict[ResultKey, CachedResult] = {}
        self._lost: list[RunningTicket] = []
        """Blocks of streams that have to be read again: their worker did not have the stream open."""
        self._readings = StreamReadings(program.strands, settings.same)
        self.workers = PoolWorkers(replace(policy, workers=settings.workers, kind="process"))
        self.arena = self.workers.arena
        self.workers.open(program)

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to do."""
        return self.workers._epoll.fileno()

    def close(self) -> None:
        self.workers.close()

    # --- consumers ----------------------------------------------------------------------------------------------------

    def join(self, pid: int) -> ConsumerState:
        consumer = ConsumerState(pid)
        self.consumers.append(consumer)
        # A process that connects again counts once.
        arrived = len(self.consumers) + len(self._left - {other.pid for other in self.consumers})
        self._incomplete = self._incomplete and arrived < self.settings.consumers
        return consumer

    def leave(self, consumer: ConsumerState) -> None:
        """Forget a consumer whose connection has ended, and free what it held."""
        consumer.gone = True
        self._left.add(consumer.pid)
        self.consumers.remove(consumer)
        self.free(consumer, list(consumer.holds.elements()))
        for _, memory in consumer.outbox:
            self._release(memory)
        consumer.queue.clear()
        self._readings.forget(consumer)
        self._tidy()

    def patience(self) -> float | None:
        """Seconds left to wait for consumers that have not connected yet; None if there are none."""
        return max(0.0, self._until - time.monotonic()) if self._incomplete else None

    def drop(self, consumer: ConsumerState, epoch: int) -> None:
        """A consumer has left an epoch: forget its requests that no worker has begun."""
        consumer.apart.add(epoch)
        consumer.outbox += [((asked.seq, channel.DROPPED, (), -1, None), None) for asked in consumer.queue]
        consumer.queue.clear()
        consumer.wanted.clear()
        self._readings.leave(consumer)
        self._tidy()

    def ask(self, consumer: ConsumerState, ticket: tuple[Any, ...]) -> None:
        """Take a ticket that a consumer has sent."""
        asked = PoolRequest(*ticket)
        if asked.epoch > self._epoch:
            self._epoch = asked.epoch
            self.workers.begin()
        if asked.strand is not None:
            start = (asked.number, asked.payload[1])
            asked.reading = self._readings.of(consumer, asked.epoch, asked.strand, start, self._is_there)
        elif self.program.stages[asked.stage].feed == "refs":
            asked.slots = [self._slots[number] for number, _, _ in asked.payload[0]]
        asked.key = self._key(consumer, asked)
        place = (asked.epoch, asked.at)
        if asked.where == (0, -1) and (asked.epoch != consumer.began[0] or place < consumer.place[0, -1]):
            consumer.began = place
        if asked.strand is not None and asked.number != asked.reading.began[asked.strand][0]:
            place = max(place, consumer.place[asked.where])  # (it may have got the end of the strand meanwhile)
        consumer.place[asked.where] = place
        consumer.queue.append(asked)
        if asked.key is not None:
            consumer.wanted.add(asked.key)

    def _key(self, consumer: ConsumerState, asked: PoolRequest) -> ResultKey | None:
        where = (asked.epoch, *asked.where, asked.at)
        if asked.reading is not None:
            return None if asked.reading.private else ResultKey(*where, OVER, asked.reading.name)
        if not self.settings.same or asked.epoch in consumer.apart:
            return None
        inputs, origin = asked.payload, asked.at
        if asked.slots:
            refs, base, stride = asked.payload
            keys = [memory.key for memory in asked.slots if memory.key is not None]
            if len(keys) < len(refs):
                return None  # made of results that no other consumer has
            origin = max(key.origin for key in keys)
            inputs = (
                [(tuple(key), first, stop) for key, (_, first, stop) in zip(keys, refs, strict=True)],
                base,
                stride,
            )
        return ResultKey(*where, origin, made_of(asked.number, inputs))

    def _is_there(self, reading: StreamReading, strand: int, number: int) -> bool:
        """Whether a block of a reading is in the cache, or being read."""
        return any(
            key.made_of == reading.name and (key.strand, key.at) == (strand, number)
            for key in (*self._cache, *self._running)
        )

    # --- tickets ------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Take replies from the workers, and give them tickets of the consumers in turn."""
        if self.patience() == 0:
            self._incomplete = False
            self._tidy()
        for reply in self.workers.collect():
            self._answered(reply)
        self._lost = [job for job in self._lost if not self._submit_again(job)]
        moving = True
        while moving:
            self._turn += 1
            in_turn = [self.consumers[(self._turn + k) % len(self.consumers)] for k in range(len(self.consumers))]
            moving = any([self._serve_next(consumer) for consumer in in_turn])  # noqa: C419 - all of them
        idle = self.consumers and not self.workers.running() and not self._incomplete
        if idle and all(consumer.queue and not consumer.outbox for consumer in self.consumers):
            # All consumers wait for each other, because their streams are not quite the same: serve the last one.
            last = min(self.consumers, key=lambda consumer: min((asked.epoch, asked.at) for asked in consumer.queue))
            self._serve_next(last, bounded=False)
        self.workers.spread_retired()
        self.workers.flush()

    def _serve_next(self, consumer: ConsumerState, bounded: bool = True) -> bool:
        """Serve the first request of a consumer that can be served now; False if there is none."""
        for asked in consumer.queue:
            if self._serve(consumer, asked, bounded):
                consumer.queue.remove(asked)
                if asked.key is not None:
                    consumer.wanted.discard(asked.key)
                    self._tidy()
                return True
        return False

    def _serve(self, consumer: ConsumerState, asked: PoolRequest, bounded: bool) -> bool:
        """Answer a request from the cache, or have a worker run it; False if it has to wait."""
        key, reading = asked.key, asked.reading
        if reading is not None and asked.number > reading.last.get(asked.strand, OVER):
            self._tell(consumer, asked, CachedResult((channel.PAST_END, (), -1, None)))
            return True
        if key is not None:
            if key in self._cache:
                self._tell(consumer, asked, self._cache[key])
                self.shared += 1
                return True
            if key in self._running:
                self._running[key].waiters.append((consumer, asked))
                self.shared += 1
                return True
            if bounded and self._is_full(key) and self._is_awaited(key):
                return False
        if reading is not None and (asked.number != reading.next[asked.strand] or reading.lost[asked.strand]):
            return False
        others = (memory.read.get(asked.number, consumer) is not consumer for memory in asked.slots)
        if not self.settings.same and any(others):
            self._tell(consumer, asked, _asked_twice())
            return True
        job = RunningTicket(asked, [(consumer, asked)])
        if not self._submit(job):
            return False
        for memory in asked.slots:
            memory.uses += 1
            memory.read[asked.number] = consumer
        self.run += 1
        if key is not None:
            self._running[key] = job
        if reading is not None:
            reading.next[asked.strand] += 1
        return True

    def _submit_again(self, job: RunningTicket) -> bool:
        """Have a lost block read again; lost blocks go in their order, each when the state before it is known."""
        reading, strand = job.asked.reading, job.asked.strand
        if reading.in_flight[strand] or not self._submit(job):
            return False
        reading.lost[strand] -= 1
        return True

    def _submit(self, job: RunningTicket) -> bool:
        asked = job.asked
        ticket = Ticket(job, asked.stage, asked.epoch, asked.number, asked.payload)
        ticket.strand, ticket.pin = asked.strand, asked.pin
        if asked.reading is not None:
            ticket.number, ticket.pin, ticket.payload = asked.reading.ticket(asked.strand, asked.number)
        elif asked.slots:
            refs, base, stride = asked.payload
            ticket.blocks = list(asked.slots)
            places = [(memory, first, stop) for memory, (_, first, stop) in zip(asked.slots, refs, strict=True)]
            ticket.payload = (places, base, stride)
        if not self.workers.submit(ticket):
            return False
        if asked.reading is not None:
            asked.reading.in_flight[asked.strand] += 1
        return True

    def _is_needed(self, key: ResultKey) -> bool:
        return self._is_awaited(key) or any(key in consumer.wanted for consumer in self.consumers)

    def _is_awaited(self, key: ResultKey) -> bool:
        """Whether a consumer has not asked for this result yet, but will."""
        if self._incomplete:
            return True
        return any(consumer.awaits(key) and self._can_have(consumer, key) for consumer in self.consumers)

    def _can_have(self, consumer: ConsumerState, key: ResultKey) -> bool:
        reading = self._readings.now(consumer, key.epoch) if key.strand >= 0 else None
        return reading is None or reading.name == key.made_of

    def _is_full(self, key: ResultKey) -> bool:
        """Whether enough results before this one wait, or will wait, for slower consumers, or take all the memory."""
        there = (key.stage, key.strand)
        kept = [k for k in (*self._cache, *self._running) if (k.stage, k.strand) == there and k < key]
        if len(kept) >= self.settings.skew:
            return True
        taken = sum(result.memory.slot.size for result in self._cache.values() if result.memory is not None)
        return bool(kept) and taken > self.arena.budget

    # --- results ------------------------------------------------------------------------------------------------------

    def _answered(self, reply: Reply) -> None:
        job = reply.ticket.owner
        assert isinstance(job, RunningTicket)
        asked, key = job.asked, job.asked.key
        for memory in asked.slots:
            self._release(memory)
        if asked.reading is not None and not asked.reading.heard(asked.strand, asked.number, reply):
            self._lost.append(job)
            if reply.slot is not None:
                self.arena.give_back(reply.slot)
            return
        result = self._result(reply, job)
        if key is not None:
            del self._running[key]
            if self._is_needed(key):
                self._cache[key] = result
                self.fullest = max(self.fullest, len(self._cache))
                if result.memory is not None:
                    result.memory.uses += 1
        for consumer, its in job.waiters:
            if not consumer.gone:
                self._tell(consumer, its, result)
        if result.memory is not None and not result.memory.uses:
            result.memory.uses = 1
            self._release(result.memory)

    def _result(self, reply: Reply, job: RunningTicket) -> CachedResult:
        if reply.slot is None:
            return CachedResult((*job.answer, None), ended=reply.error is not None)
        number = reply.slot.number
        memory = self._slots[number] = SharedSlot(reply.slot, job.asked.key)
        return CachedResult((*job.answer, number), memory, reply.ended)

    def _tell(self, consumer: ConsumerState, asked: PoolRequest, result: CachedResult) -> None:
        if result.memory is not None:
            result.memory.uses += 1
        consumer.outbox.append(((asked.seq, *result.body), result.memory))
        if result.ended and asked.reading is not None:
            consumer.place[asked.where] = (asked.epoch, OVER)

    def _tidy(self) -> None:
        """Remove results from the cache that no consumer needs any more."""
        for key in [key for key in self._cache if not self._is_needed(key)]:
            self._release(self._cache.pop(key).memory)

    def free(self, consumer: ConsumerState, numbers: list[int]) -> None:
        """A consumer has no views of these slots any more."""
        for number in numbers:
            consumer.holds[number] -= 1
            if not consumer.holds[number]:
                del consumer.holds[number]
            self._release(self._slots[number])

    def _release(self, memory: SharedSlot | None) -> None:
        if memory is None:
            return
        memory.uses -= 1
        if not memory.uses:
            del self._slots[memory.slot.number]
            self.arena.give_back(memory.slot)

    def count(self) -> dict[str, Any]:
        return {
            "pids": self.workers.pids(), "consumers": len(self.consumers), "run": self.run, "shared": self.shared,
            "cache": len(self._cache), "fullest": self.fullest, "slots": len(self._slots), "bytes": self.arena.total,
            "waiting": sum(len(consumer.queue) for consumer in self.consumers), "running": self.workers.running(),
            "restarts": len(self.workers.restarts),
        }  # fmt: skip


def _asked_twice() -> CachedResult:
    error = BadOption(
        "two consumers of a shared pool have asked for the same samples of a stream: give each its own share with "
        "world=World(rank, ranks), or all of them the same stream with SharedPool(same=True)"
    )
    return CachedResult((FAILED, tuple(failed(error)), -1, None), ended=True)
