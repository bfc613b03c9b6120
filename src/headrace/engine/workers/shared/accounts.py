"""What the dispatcher of a shared pool keeps account of: consumers, what they ask for, results, and lent memory."""

from __future__ import annotations

import marshal
from collections import deque
from hashlib import blake2b
from typing import Any, NamedTuple

from headrace.engine.wire.messages import Ticket
from headrace.memory.arena import Slot

OVER = 1 << 62
"""Past all tickets of an epoch."""


class PoolSettings(NamedTuple):
    """What the pool was started with."""

    workers: int
    consumers: int
    same: bool
    skew: int
    """The most results of one stage that wait for slower consumers."""
    wait: float
    """Seconds for which consumers that have not come yet are waited for."""


class ResultKey(NamedTuple):
    """Which result it is: two consumers that ask for the same key may be given the same one."""

    epoch: int
    stage: int
    strand: int
    """Or -1."""
    at: int
    """Where its samples stand among those of its stage, or of its strand; the same order for all consumers."""
    origin: int
    """The last position of the head that it is made of; past all of them if that is a stream."""
    made_of: bytes
    """Its number, and its inputs down to the positions of the head, or to the reading of a stream."""


def made_of(*inputs: Any) -> bytes:
    return blake2b(marshal.dumps(inputs), digest_size=16).digest()


class SharedSlot:
    """A slot, and how many look after it: consumers that have it, tickets that read it, the cache."""

    __slots__ = ("key", "read", "slot", "uses")

    def __init__(self, slot: Slot, key: ResultKey | None) -> None:
        self.slot = slot
        self.key = key
        """None: no other consumer will ever have it."""
        self.uses = 0
        self.read: dict[int, ConsumerState] = {}
        """The numbers of the tickets that have read it, and whose they were: one that failed is run again in parts."""


class CachedResult:
    """What came of a ticket, as it is told."""

    __slots__ = ("body", "ended", "memory")

    def __init__(self, body: tuple[Any, ...], memory: SharedSlot | None = None, ended: bool = False) -> None:
        self.body = body
        self.memory = memory
        self.ended = ended


class PoolRequest:
    """A ticket that a consumer wants to have run."""

    __slots__ = ("epoch", "key", "number", "payload", "pin", "reading", "seq", "slots", "stage", "strand")

    def __init__(self, told: tuple[Any, ...]) -> None:
        self.seq, self.stage, self.epoch, self.number, self.payload, self.strand, self.pin = told
        self.key: ResultKey | None = None
        """Set if others may ask for the same."""
        self.slots: list[SharedSlot] = []
        """What it reads."""
        self.reading: Any = None
        """Of a block of a stream: which reading of it."""

    @property
    def where(self) -> tuple[int, int]:
        """Stage and strand."""
        return self.stage, -1 if self.strand is None else self.strand

    @property
    def at(self) -> int:
        if self.slots:
            return int(self.payload[1])
        if self.strand is None and type(self.payload) is tuple:
            start, stop, extra = self.payload
            return int(extra[0] if start == stop and extra else start)
        return int(self.number)


class ConsumerState:
    """One consumer, as the dispatcher sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.queue: deque[PoolRequest] = deque()
        """What it has asked for and nobody has begun."""
        self.wanted: set[ResultKey] = set()
        """The keys of these."""
        self.place: dict[tuple[int, int], tuple[int, int]] = {}
        """By stage and strand: the epoch, and where the last ticket stands that it has asked for."""
        self.began = (-1, 0)
        """The epoch, and the position of the head where it began that epoch: no ticket is made of what lies before."""
        self.apart: set[int] = set()
        """Epochs that it has left, or came too late for: nothing of them is done for it and others together."""
        self.holds: dict[int, int] = {}
        """Slots that it was lent, and how often."""
        self.known: set[int] = set()
        """Slots that it has mapped."""
        self.outbox: list[tuple[tuple[Any, ...], SharedSlot | None]] = []
        """Replies that are ready."""
        self.gone = False

    def awaits(self, key: ResultKey) -> bool:
        """It has not asked for this yet, but will."""
        if self.place.get((key.stage, key.strand), (-1, -1)) >= (key.epoch, key.at) or key.epoch in self.apart:
            return False
        epoch, first = self.began
        return key.epoch != epoch or key.origin >= first


class RunningTicket:
    """A ticket under way, and who waits for it."""

    __slots__ = ("asked", "told", "waiters")

    def __init__(self, asked: PoolRequest, consumer: ConsumerState) -> None:
        self.asked = asked
        self.waiters = [(consumer, asked)]
        self.told: tuple[Any, ...] = ()
        """What its worker has answered: the kind of the result, its fields, the worker's number."""

    def let_go(self, ticket: Ticket) -> None:
        """Nothing to do: the slots are released with the reply."""
