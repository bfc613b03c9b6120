"""Breakdown: where the seconds of a batch go, worked out of a record.

    head          ops that run in one place, for a stream
    work          ops that any worker runs on any ticket
    transport     what workers spend beside the ops (packing, memory), and the consumer on decoding
    tail          ops that run in the consumer
    step          the training loop itself

All of it in seconds per batch, so that parts can be compared whatever runs at the same time.
"""

from dataclasses import dataclass
from statistics import median

from headrace.observe.meter import RUN
from headrace.observe.profile.record import Span, Turn
from headrace.observe.profile.watch import Record
from headrace.observe.units import group_of


@dataclass(frozen=True, slots=True)
class TimedPart:
    """One op, or one thing that is no op."""

    room: str
    """head, work, transport, tail or step."""
    name: str
    seconds: float
    ordinal: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker."""

    number: int
    tickets: int
    busy: float
    usual: float
    """Median seconds of a ticket of the stage that costs most."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    batches: int
    samples: int
    """In a batch, as the pipe groups them."""
    wall: float
    """Seconds per batch, start-up left out."""
    start: float
    """Seconds until the first batch."""
    waited: float
    parts: tuple[TimedPart, ...]
    loads: tuple[WorkerLoad, ...]
    bytes: float
    """That came from workers."""
    workers: int
    kind: str
    busy: float | None

    @property
    def waiting(self) -> float:
        """Of the time, the part in which the training loop waits."""
        return min(1.0, self.waited / self.wall) if self.wall else 0.0

    def total(self, *rooms: str) -> float:
        return sum(part.seconds for part in self.parts if part.room in rooms)


def break_down(record: Record) -> Breakdown:
    turns = record.turns
    steady = turns[1:] or turns
    count = len(steady)
    wall = (record.ended - (turns[0].got if len(turns) > 1 else record.began)) / count if turns else 0.0
    return Breakdown(
        batches=len(turns),
        samples=group_of(record.program.pipe),
        wall=wall,
        start=turns[0].got - record.began if turns else 0.0,
        waited=sum(turn.waited for turn in steady) / max(1, count),
        parts=_parts(record, steady),
        loads=_loads(record.recorder.spans),
        bytes=record.recorder.payload * _per_batch(record),
        workers=record.policy.workers,
        kind=record.policy.kind,
        busy=record.busy,
    )


def _per_batch(record: Record) -> float:
    """What to multiply a sum over all answered tickets with to get a batch's share."""
    batches = len(record.turns)
    if not batches:
        return 0.0
    last = record.program.last
    # Tickets that were answered but not delivered when the run was stopped made batches too.
    made = record.recorder.answered.get(last.number, 0) if last.single else batches
    return 1.0 / max(made, batches)


def _parts(record: Record, steady: list[Turn]) -> tuple[TimedPart, ...]:
    program, recorder = record.program, record.recorder
    nodes = program.pipe.nodes()
    scale = _per_batch(record)
    streamed = set() if program.indexed else {id(node) for node in program.head.nodes()}
    parts: list[TimedPart] = []
    busy, ops = _in_workers(record)
    for ordinal, spent in sorted(ops.items()):
        room = "head" if id(nodes[ordinal]) in streamed else "work"
        parts.append(TimedPart(room, nodes[ordinal].op.describe(), spent * scale, ordinal))
    if record.policy.kind != "inline":
        parts.append(TimedPart("transport", "packing, in workers", max(0.0, busy - sum(ops.values())) * scale))
    count = max(1, len(steady))
    every = max(1, len(record.turns))
    tail = sorted((o, s) for o, s in recorder.tail.items() if o != RUN)
    parts += [TimedPart("tail", nodes[ordinal].op.describe(), spent / every, ordinal) for ordinal, spent in tail]
    own = sum(turn.got - turn.asked - turn.waited - turn.tail for turn in steady) / count
    parts.append(TimedPart("transport", "decoding and dealing out, in the consumer", max(0.0, own)))
    parts.append(TimedPart("step", "the training loop", _step(record)))
    return tuple(parts)


def _in_workers(record: Record) -> tuple[float, dict[int, float]]:
    """Seconds of all tickets, and of each op in them."""
    busy, ops = 0.0, dict[int, float]()
    for stage, answered in record.recorder.answered.items():
        spans = warm([span for span in record.recorder.spans if span.stage == stage])
        for span in spans:
            busy += (span.ended - span.began) * answered / len(spans)
            for ordinal, spent in (span.ops or {}).items():
                ops[ordinal] = ops.get(ordinal, 0.0) + spent * answered / len(spans)
    return busy, ops


def warm(spans: list[Span]) -> list[Span]:
    """Without the first ticket of each worker, which imports modules and opens files for all that follow."""
    seen: set[int] = set()
    rest = []
    for span in spans:
        if span.worker in seen:
            rest.append(span)
        seen.add(span.worker)
    return rest or spans


def _step(record: Record) -> float:
    steps = [max(0.0, over - turn.got) for turn, over in record.steps()]
    return sum(steps) / len(steps) if steps else 0.0


def _loads(spans: list[Span]) -> tuple[WorkerLoad, ...]:
    by_stage: dict[int, float] = {}
    for span in spans:
        by_stage[span.stage] = by_stage.get(span.stage, 0.0) + span.ended - span.began
    if not by_stage:
        return ()
    main = max(by_stage, key=by_stage.__getitem__)
    loads = []
    for number in sorted({span.worker for span in spans}):
        mine = [span for span in spans if span.worker == number]
        usual = [span.ended - span.began for span in mine if span.stage == main]
        busy = sum(span.ended - span.began for span in mine)
        loads.append(WorkerLoad(number, len(mine), busy, median(usual) if usual else 0.0))
    return tuple(loads)
