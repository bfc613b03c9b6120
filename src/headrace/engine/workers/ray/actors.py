"""The consumer's view of its Ray actors: which calls each one has under way, and which actor gets the next ticket.

A call to an actor costs as much as running a small ticket, or more. So once it is known how long tickets take, small
ones are collected until they are worth a call. An actor that would run out of work gets what there is.
"""

from dataclasses import dataclass, field
from typing import Any

from headrace.engine.policy import Policy
from headrace.engine.wire.messages import Reply, Ticket
from headrace.engine.workers.remote import RemoteWorker

WORTH_A_CALL = 0.004
"""Seconds of work that one call should carry."""
MOST_TOGETHER = 4
"""The window is 8 tickets a worker; two calls are to fit in."""


@dataclass(slots=True, eq=False)
class ActorState(RemoteWorker):
    """One actor and what it has to do."""

    actor: Any = None
    calls: dict[Any, "ActorCall"] = field(default_factory=dict)
    """In the order in which it runs them."""
    outbox: list[Ticket] = field(default_factory=list)
    """Submitted, not sent yet."""
    gone: bool = False
    """It has died."""
    same_node: bool = False
    """It can write into slots of the consumer's."""
    dump: int = -1
    """The descriptor, in its process, of the file that its stack is written to."""
    node: str = ""

    @property
    def load(self) -> int:
        """Tickets in calls and in the outbox."""
        return len(self.outbox) + sum(len(call.tickets) for call in self.calls.values())

    @property
    def doing(self) -> str:
        """What it runs now: the first of its calls."""
        first = next(iter(self.calls.values()))
        return str(first.tickets[0]) if first.tickets else "not started yet: is the cluster full?"


@dataclass(slots=True, eq=False)
class ActorCall:
    """A call under way: starting the worker, running tickets, or fetching samples from the store."""

    actor: ActorState
    ref: object
    tickets: list[Ticket]
    """None: the worker starts."""
    samples: object = None
    """The reference to samples that stay in the store."""
    fetch: Reply | None = None
    """The reply is known, and its samples (`reply.outputs`) are on their way to the consumer."""

    @property
    def strand(self) -> tuple[int, int] | None:
        """Epoch and number of the strand whose block this is."""
        first = self.tickets[0] if self.tickets else None
        return None if first is None or first.strand is None else (first.epoch, first.strand)

    @property
    def in_turn(self) -> bool:
        """Whether no earlier block of the same strand is still expected."""
        strand = self.strand
        if strand is None or self.fetch:
            return True
        return next(c for c in self.actor.calls.values() if c.strand == strand) is self


class Scheduler:
    """Chooses an actor for each ticket, and learns how long tickets take."""

    def __init__(self, policy: Policy) -> None:
        self.actors: list[ActorState] = []
        self._prefetch = policy.prefetch
        self._adaptive = policy.window is None and not policy.pinned
        self._pace: dict[int, float] = {}
        """Seconds of a ticket, by stage."""

    def join(self, actor: ActorState) -> None:
        """Add an actor, in the place of the one with the same number if there was one."""
        if actor.number < len(self.actors):
            self.actors[actor.number] = actor
        else:
            self.actors.append(actor)

    def choose(self, ticket: Ticket, alone: bool) -> ActorState | None:
        """The actor that should run the ticket, if one has room now. `alone`: the ticket needs a call of its own."""
        room = self._prefetch * (1 if alone else self.together(ticket.stage))
        free = [w for w in self.actors if w.ready and not w.retiring and w.load < room]
        if ticket.pin is not None:
            actor = self.actors[ticket.pin % len(self.actors)]
            return actor if actor in free else None
        return min(free, key=lambda w: w.load, default=None)

    def least_busy(self) -> ActorState:
        return min(self.actors, key=lambda w: (not w.ready, w.load))

    def together(self, stage: int) -> int:
        """How many tickets of a stage make a call that is worth its cost."""
        pace = self._pace.get(stage)
        if pace is None or not self._adaptive:
            return 1
        return max(1, min(MOST_TOGETHER, int(WORTH_A_CALL / max(pace, 1e-6))))

    def learn(self, reply: Reply) -> None:
        if reply.seconds:
            seconds, stage = reply.seconds[0], reply.ticket.stage
            pace = self._pace.setdefault(stage, seconds)
            self._pace[stage] = pace + (seconds - pace) / 8

    def due(self, actor: ActorState) -> bool:
        """Whether what is in the actor's outbox should be sent now."""
        if not actor.outbox:
            return False
        return len(actor.calls) < self._prefetch or len(actor.outbox) >= self.together(actor.outbox[0].stage)
