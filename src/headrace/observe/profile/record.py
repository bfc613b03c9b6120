"""What happened while a loader ran under the profiler, as plain events.

    Span          one ticket in one worker: when it began and ended, the seconds of each op, the bytes of its result
    BatchTiming   one batch as the training loop saw it: when it asked, when it got it, how long it waited
    MemoryLevel   how much shared memory there was at one moment

`Record` is a meter: an epoch that is given it in place of a plain `Meter` fills it, and the engine needs to know
nothing of profiling. All times are of `time.perf_counter`, which all processes of one machine share.
"""

import time
from typing import Any, NamedTuple

from headrace.engine.policy import Policy
from headrace.engine.program import Program
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
    bytes: int
    ops: dict[int, float] | None
    """Seconds by op, counted from the sources."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class BatchTiming(NamedTuple):
    asked: float
    got: float
    waited: float
    """Seconds between `asked` and `got` in which the training process waited for workers."""
    tail: float
    """Seconds between `asked` and `got` in ops that run in the training process."""


class MemoryLevel(NamedTuple):
    when: float
    bytes: int
    slots: int
    waiting: int
    """Tickets that were answered and not yet delivered."""


class Record(Meter):
    """All that the profiler saw of one run."""

    def __init__(self, program: Program, policy: Policy) -> None:
        super().__init__()
        self.program, self.policy = program, policy
        self.tail = Clock()
        self.full = False
        """Enough was seen: nothing is added any more."""
        self.spans: list[Span] = []
        self.answered: dict[int, int] = {}
        """Tickets by stage."""
        self.payload = 0
        """Bytes that came from workers."""
        self.timings: list[BatchTiming] = []
        self.levels: list[MemoryLevel] = []
        self.began = time.perf_counter()
        self.ended = 0.0
        """When the last step of the training loop was over."""
        self.retries = 0

    def count(self, stage: int, reply: Any) -> None:
        super().count(stage, reply)
        if self.full:
            return
        self.answered[stage] = self.answered.get(stage, 0) + 1
        self.payload += reply.bytes
        if not reply.seconds or len(self.spans) >= MOST:
            return
        seconds, ops, began, _ = reply.seconds
        self.spans.append(Span(reply.worker, stage, reply.ticket.number, began, began + seconds, reply.bytes, ops))

    def spans_by_stage(self) -> dict[int, list[Span]]:
        """The spans of each stage, without the first ticket of each worker: it imports modules and opens files.

        A stage in which no worker has had a second ticket keeps its first ones.
        """
        warm: dict[int, list[Span]] = {}
        for stage in self.answered:
            spans = [span for span in self.spans if span.stage == stage]
            first = {span.worker: span for span in reversed(spans)}
            warm[stage] = [span for span in spans if span is not first[span.worker]] or spans
        return warm

    def steps(self) -> list[tuple[BatchTiming, float]]:
        """Every batch, and when the training step on it was over."""
        over = [batch.asked for batch in self.timings[1:]] + [self.ended]
        return list(zip(self.timings, over, strict=False))
