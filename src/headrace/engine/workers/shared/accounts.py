"""What the dispatcher of a shared pool keeps account of: consumers, what they ask for, results, and lent memory."""

from __future__ import annotations

import marshal
from collections import deque
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False)
class SharedSlot:
    """A slot, and how many look after it: consumers that have it, tickets that read it, the cache."""

    slot: Slot
    key: ResultKey | None
    """None: no other consumer will ever have it."""
    uses: int = 0
    read: dict[int, ConsumerState] = field(default_factory=dict)
    """The numbers of the tickets that have read it, and whose they were: one that failed is run again in parts."""


class CachedResult(NamedTuple):
    """What came of a ticket, as it is told."""

    body: tuple[Any, ...]
    memory: SharedSlot | None = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class PoolRequest:
    """A ticket that a consumer wants to have run."""

    seq: int
    stage: int
    epoch: int
    number: int
    payload: Any
    strand: int | None
    pin: int | None
    key: ResultKey | None = None
    """Set if others may ask for the same."""
    slots: list[SharedSlot] = field(default_factory=list)
    """What it reads."""
    reading: Any = None
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


@dataclass(slots=True, eq=False)
class ConsumerState:
    """One consumer, as the dispatcher sees it."""

    pid: int
    queue: deque[PoolRequest] = field(default_factory=deque)
    """What it has asked for and nobody has begun."""
    wanted: set[ResultKey] = field(default_factory=set)
    """The keys of these."""
    place: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By stage and strand: the epoch, and where the last ticket stands that it has asked for."""
    began: tuple[int, int] = (-1, 0)
    """The epoch, and the position of the head where it began that epoch: no ticket is made of what lies before."""
    apart: set[int] = field(default_factory=set)
    """Epochs that it has left, or came too late for: nothing of them is done for it and others together."""
    holds: dict[int, int] = field(default_factory=dict)
    """Slots that it was lent, and how often."""
    known: set[int] = field(default_factory=set)
    """Slots that it has mapped."""
    outbox: list[tuple[tuple[Any, ...], SharedSlot | None]] = field(default_factory=list)
    """Replies that are ready."""
    gone: bool = False

    def awaits(self, key: ResultKey) -> bool:
        """It has not asked for this yet, but will."""
        if self.place.get((key.stage, key.strand), (-1, -1)) >= (key.epoch, key.at) or key.epoch in self.apart:
            return False
        epoch, first = self.began
        return key.epoch != epoch or key.origin >= first


@dataclass(slots=True, eq=False)
class RunningTicket:
    """A ticket under way, and who waits for it."""

    asked: PoolRequest
    waiters: list[tuple[ConsumerState, PoolRequest]]
    answer: tuple[Any, ...] = ()
    """What its worker has answered: the kind of the result, its fields, the worker's number."""

    def let_go(self, ticket: Ticket) -> None:
        """Nothing to do: the slots are released with the reply."""
