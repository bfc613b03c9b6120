"""What the dispatcher of a shared pool keeps account of: consumers, their requests, results, and lent memory."""

from __future__ import annotations

import marshal
from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from headrace.engine.wire.messages import Ticket
from headrace.memory.arena import Slot

OVER = 1 << 62
"""A number after all tickets of an epoch."""


class PoolSettings(NamedTuple):
    """What the pool was started with."""

    workers: int
    consumers: int
    same: bool
    skew: int
    """The most results of one stage that wait for slower consumers."""
    wait: float
    """Seconds to wait for consumers that have not connected yet."""


class ResultKey(NamedTuple):
    """Names a result: consumers that ask for the same key may get the same result."""

    epoch: int
    stage: int
    strand: int
    """-1: none."""
    at: int
    """Where its samples stand among those of its stage, or of its strand; the same order for all consumers."""
    origin: int
    """The last position of the head that it is made of; `OVER` if the head is a stream."""
    made_of: bytes
    """A digest of its number and its inputs, down to the positions of the head, or to the reading of a stream."""


def made_of(*inputs: Any) -> bytes:
    """A digest of what a result is made of."""
    return blake2b(marshal.dumps(inputs), digest_size=16).digest()


@dataclass(slots=True, eq=False)
class SharedSlot:
    """A slot with a result, and how many uses it has: consumers that hold it, tickets that read it, the cache."""

    slot: Slot
    key: ResultKey | None
    """None: only one consumer gets it."""
    uses: int = 0
    read: dict[int, ConsumerState] = field(default_factory=dict)
    """The numbers of the tickets that have read it, and whose they were. (A failed ticket is run again in parts.)"""


class CachedResult(NamedTuple):
    """The result of a ticket, as it is sent to each consumer."""

    body: tuple[Any, ...]
    memory: SharedSlot | None = None
    ended: bool = False
    """It is the last block of a strand."""


@dataclass(slots=True, eq=False)
class PoolRequest:
    """A ticket that a consumer has asked for."""

    seq: int
    stage: int
    epoch: int
    number: int
    payload: Any
    strand: int | None
    pin: int | None
    key: ResultKey | None = None
    """None: no other consumer may get the same result."""
    slots: list[SharedSlot] = field(default_factory=list)
    """The results that it reads."""
    reading: Any = None
    """Of a block of a stream: the `StreamReading` that it belongs to."""

    @property
    def where(self) -> tuple[int, int]:
        """Stage and strand."""
        return self.stage, -1 if self.strand is None else self.strand

    @property
    def at(self) -> int:
        """Where its samples stand among those of its stage, or of its strand."""
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
    """Requests that no worker has begun."""
    wanted: set[ResultKey] = field(default_factory=set)
    """The keys of the requests in the queue."""
    place: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By stage and strand: the epoch of the last request, and where that stands."""
    began: tuple[int, int] = (-1, 0)
    """The epoch, and the position of the head where it began that epoch: its tickets are made of later positions."""
    apart: set[int] = field(default_factory=set)
    """Epochs that it has left, or came too late for: it shares no results of them with other consumers."""
    holds: Counter[int] = field(default_factory=Counter)
    """Slots that it was lent, and how often."""
    known: set[int] = field(default_factory=set)
    """Slots that it has mapped."""
    outbox: list[tuple[tuple[Any, ...], SharedSlot | None]] = field(default_factory=list)
    """Replies that are ready to be sent."""
    gone: bool = False

    def awaits(self, key: ResultKey) -> bool:
        """Whether it will ask for this result later."""
        if self.place.get((key.stage, key.strand), (-1, -1)) >= (key.epoch, key.at) or key.epoch in self.apart:
            return False
        epoch, first = self.began
        return key.epoch != epoch or key.origin >= first


@dataclass(slots=True, eq=False)
class RunningTicket:
    """A ticket under way, and the consumers that wait for it."""

    asked: PoolRequest
    waiters: list[tuple[ConsumerState, PoolRequest]]
    answer: tuple[Any, ...] = ()
    """The answer of its worker: the kind of the result, its fields, the worker's number."""

    def release_inputs(self, ticket: Ticket) -> None:
        """Do nothing: the slots are released with the reply."""
