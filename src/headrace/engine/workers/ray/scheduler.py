"""Scheduler: which actor gets the next ticket, and how many tickets travel together.

A call to an actor costs as much as a small ticket, or more. So once it is known how long a ticket takes, small
ones are collected until they are worth a call; an actor that would run out of work gets what there is.
"""

from collections import deque

from headrace.engine.policy import Policy
from headrace.engine.wire.messages import Owner, Reply, Ticket
from headrace.engine.workers.ray.actors import ActorState

WORTH_A_CALL = 0.004
"""Seconds of work that one call should carry."""
MOST_TOGETHER = 4
"""The window is 8 tickets a worker; two calls are to fit in."""


class Scheduler:
    """The actors, their queues, and tickets that were lost and wait for somebody to run them again."""

    def __init__(self, policy: Policy) -> None:
        self.actors: list[ActorState] = []
        self.waiting: deque[Ticket] = deque()
        self._prefetch = policy.prefetch
        self._adaptive = policy.window is None and policy.stealing
        self._pace: dict[int, float] = {}

    def join(self, actor: ActorState) -> None:
        """A new actor, in the place of one that has left if there was one."""
        if actor.number < len(self.actors):
            self.actors[actor.number] = actor
        else:
            self.actors.append(actor)

    def choose(self, ticket: Ticket, alone: bool) -> ActorState | None:
        """Whoever should run the ticket, if there is room there now."""
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
        """What is in the actor's outbox should go now."""
        if not actor.outbox:
            return False
        return len(actor.calls) < self._prefetch or len(actor.outbox) >= self.together(actor.outbox[0].stage)

    def load(self) -> int:
        return len(self.waiting) + sum(actor.load for actor in self.actors)

    def drop(self, owner: Owner) -> None:
        """Forget what has not been sent of an owner's tickets."""
        for ticket in (*self.waiting, *(ticket for actor in self.actors for ticket in actor.outbox)):
            if ticket.owner is owner:
                owner.let_go(ticket)
        self.waiting = deque(ticket for ticket in self.waiting if ticket.owner is not owner)
        for actor in self.actors:
            actor.load -= len(actor.outbox)
            actor.outbox = [ticket for ticket in actor.outbox if ticket.owner is not owner]
            actor.load += len(actor.outbox)
