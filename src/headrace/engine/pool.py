"""Pool: the workers of a loader, kept over epochs.

A loader keeps one set of workers. An iterator takes it and gives it back at its end; a second iterator that lives at
the same time gets a set of its own, so that two of them never wait for each other.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.workers.inline import InlineWorkers
from headrace.engine.workers.protocol import Workers
from headrace.errors import BadOption, hint_at_limit


@dataclass(eq=False)
class Pool:
    """Sets of workers for one program."""

    program: Program
    policy: Policy
    closed: bool = False
    _idle: list[Workers] = field(default_factory=list)
    _busy: list[Workers] = field(default_factory=list)
    # Re-entrant: the collector may end an iterator, which gives its workers back, while this lock is held.
    _lock: "threading.RLock" = field(default_factory=threading.RLock)
    _owner: int = field(default_factory=os.getpid)
    _replaced: int = 0

    def __post_init__(self) -> None:
        # Now, not with the first iterator: what this machine cannot do is refused when the loader is made, and the
        # first batch does not wait for the import.
        self._make = maker(self.policy)

    def take(self) -> Workers:
        """An idle set of workers, or a new one."""
        if self._owner != os.getpid():
            # A forked copy of the consumer: the workers belong to the parent, this process starts its own.
            self._idle, self._busy, self._owner, self._lock = [], [], os.getpid(), threading.RLock()
        with self._lock:
            workers = self._idle.pop() if self._idle else None
        if workers is None:
            workers = self._make()
            try:
                workers.open(self.program)
            except OSError as error:
                hint_at_limit(error)
                raise
        with self._lock:
            self._busy.append(workers)
        return workers

    def give_back(self, workers: Workers) -> None:
        """Keep workers for the next iterator; a second idle set ends."""
        with self._lock:
            self._busy = [w for w in self._busy if w is not workers]
            keep = not self.closed and not self._idle
            if keep:
                self._idle.append(workers)
        if not keep:
            self._end(workers)

    def change(self, policy: Policy) -> None:
        """From now on, start workers by another policy; idle ones end."""
        with self._lock:
            idle, self._idle = self._idle, []
            self.policy, self._make = policy, maker(policy)
        for workers in idle:
            self._end(workers)

    def discard(self, workers: Workers) -> None:
        """End workers that must not be used again."""
        self._end(workers)  # first: if this is interrupted, they are still known, and `close` ends them
        with self._lock:
            self._busy = [w for w in self._busy if w is not workers]
            self._idle = [w for w in self._idle if w is not workers]

    def replaced(self) -> int:
        """How many workers have died and were replaced, in all sets there have been."""
        return self._replaced + sum(len(workers.restarts) for workers in self.all())

    def all(self) -> list[Workers]:
        """All sets, idle or in use."""
        with self._lock:
            return [*self._idle, *self._busy]

    def close(self) -> None:
        self.closed = True
        for workers in self.all():
            self.discard(workers)

    def _end(self, workers: Workers) -> None:
        self._replaced += len(workers.restarts)
        workers.restarts.clear()
        workers.close()


def maker(policy: Policy) -> Callable[[], Workers]:
    """What makes a set of workers of the policy's kind."""
    if policy.kind == "inline":
        return InlineWorkers
    if policy.kind == "thread":
        from headrace.engine.workers.thread import ThreadWorkers

        return partial(ThreadWorkers, policy)
    if policy.kind == "ray":
        from headrace.engine.workers.ray.workers import RayWorkers

        return partial(RayWorkers, policy)
    if not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
        raise BadOption("worker processes need Linux (5.3 or later); kind='thread' runs the same pipe in threads")
    from headrace.engine.workers.process.workers import ProcessWorkers

    return partial(ProcessWorkers, policy)
