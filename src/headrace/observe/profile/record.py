"""Record: what happened while a loader ran under the profiler, as plain events.

    Span         one ticket in one worker: from when to when, how long each op took, how many bytes came of it
    Turn         one batch from the training loop's side: asked, got, and how much of that was waiting
    MemoryLevel  shared memory at one moment

`Recorder` is a meter, so that the engine fills it without knowing: it is given to an epoch in place of a plain one. All
times are of `time.perf_counter`, which all processes of one machine share.
"""

import time
from typing import Any, NamedTuple

from headrace.observe.meter import Meter
from headrace.op import Clock

MOST = 50_000
"""Events of one kind that are kept."""


class Span(NamedTuple):
    worker: int
    stage: int
    number: int
    began: float
    ended: float
    received: float
    bytes: int
    ops: dict[int, float] | None
    """Seconds by op, counted from the sources."""


class Turn(NamedTuple):
    asked: float
    got: float
    waited: float
    """Seconds of it in which nothing was to be done but wait."""
    tail: float
    """Seconds of it in ops that run in the consumer."""


class MemoryLevel(NamedTuple):
    when: float
    bytes: int
    slots: int
    waiting: int
    """Tickets that were answered and not yet delivered."""


class Recorder(Meter):
    """A meter that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = Clock()
        self.full = False
        """Enough was seen: nothing is added any more."""
        self.spans: list[Span] = []
        self.answered: dict[int, int] = {}
        """Tickets by stage."""
        self.payload = 0
        """Bytes that came from workers."""

    def count(self, stage: int, reply: Any) -> None:
        super().count(stage, reply)
        if self.full:
            return
        self.answered[stage] = self.answered.get(stage, 0) + 1
        self.payload += reply.bytes
        if not reply.seconds or len(self.spans) >= MOST:
            return
        now = time.perf_counter()
        seconds, ops, *clock = reply.seconds
        # Clocks of other machines tell other times: what began there is put where it was seen.
        began = clock[0] if clock else now - seconds
        self.spans.append(Span(reply.worker, stage, reply.ticket.number, began, began + seconds, now, reply.bytes, ops))
