"""Roster: who of the workers beyond this process gets the next ticket, and how many tickets travel together.

A call to such a worker costs as much as a small ticket, or more. So once it is known how long a ticket takes, small
ones are collected until they are worth a call; a worker that would run out of work gets what there is.
"""

from collections import deque
from typing import Any

from headrace.engine.policy import Policy
from headrace.engine.wire.messages import Reply, Ticket
from headrace.engine.workers.ray.calls import Worker

WORTH_A_CALL = 0.004
"""Seconds of work that one call should carry."""
MOST_TOGETHER = 4
"""The window is 8 tickets a worker; two calls are to fit in."""


class Roster:
    """The workers, their queues, and tickets that were lost and wait for somebody to run them again."""

    def __init__(self, policy: Policy) -> None:
        self.workers: list[Worker] = []
        self.waiting: deque[Ticket] = deque()
        self._prefetch = policy.prefetch
        self._adaptive = policy.window is None and policy.stealing
        self._pace: dict[int, float] = {}

    def join(self, worker: Worker) -> None:
        """A new worker, in the place of one that has left if there was one."""
        if worker.number < len(self.workers):
            self.workers[worker.number] = worker
        else:
            self.workers.append(worker)

    def choose(self, ticket: Ticket, alone: bool) -> Worker | None:
        """Whoever should run the ticket, if there is room there now."""
        room = self._prefetch * (1 if alone else self.together(ticket.stage))
        free = [w for w in self.workers if w.ready and not w.retiring and w.load < room]
        if ticket.pin is not None:
            worker = self.workers[ticket.pin % len(self.workers)]
            return worker if worker in free else None
        return min(free, key=lambda w: w.load, default=None)

    def least_busy(self) -> Worker:
        return min(self.workers, key=lambda w: (not w.ready, w.load))

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

    def due(self, worker: Worker) -> bool:
        """What is in the worker's outbox should go now."""
        if not worker.outbox:
            return False
        return len(worker.calls) < self._prefetch or len(worker.outbox) >= self.together(worker.outbox[0].stage)

    def load(self) -> int:
        return len(self.waiting) + sum(worker.load for worker in self.workers)

    def drop(self, owner: Any) -> None:
        """Forget what has not been sent of an owner's tickets."""
        for ticket in (*self.waiting, *(ticket for worker in self.workers for ticket in worker.outbox)):
            if ticket.owner is owner:
                owner.let_go(ticket)
        self.waiting = deque(ticket for ticket in self.waiting if ticket.owner is not owner)
        for worker in self.workers:
            worker.load -= len(worker.outbox)
            worker.outbox = [ticket for ticket in worker.outbox if ticket.owner is not owner]
            worker.load += len(worker.outbox)
