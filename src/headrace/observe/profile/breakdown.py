"""Where the seconds of a batch go, worked out of a record.

    head          ops that run in one place, for a stream
    work          ops that any worker runs on any ticket
    transport     what workers spend beside the ops (packing, memory), and the training process on decoding
    tail          ops that run in the training process
    step          the training loop itself

All of it in seconds per batch, so that parts can be compared whatever runs at the same time.
"""

from dataclasses import dataclass
from statistics import median

from headrace.observe.meter import RUN
from headrace.observe.profile.record import Record, Span
from headrace.observe.units import group_of


@dataclass(frozen=True, slots=True)
class TimedPart:
    """One op, or something beside the ops that takes time."""

    room: str
    """head, work, transport, tail or step."""
    name: str
    seconds: float
    ordinal: int | None = None

    @property
    def in_consumer(self) -> bool:
        """Whether it runs in the training process; everything else runs in workers."""
        return self.room in ("tail", "step") or self.name.endswith("in the consumer")


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What one worker did."""

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
    """Of a batch, that came from workers."""
    workers: int
    kind: str

    @property
    def waiting(self) -> float:
        """The part of the time in which the training loop waits."""
        return min(1.0, self.waited / self.wall) if self.wall else 0.0

    @property
    def rate(self) -> float:
        """Batches a second."""
        return 1 / self.wall if self.wall else 0.0


def break_down(record: Record) -> Breakdown:
    batches = record.timings
    steady = batches[1:] or batches
    began = batches[0].got if len(batches) > 1 else record.began
    return Breakdown(
        batches=len(batches),
        samples=group_of(record.program.pipe),
        wall=(record.ended - began) / len(steady) if steady else 0.0,
        start=batches[0].got - record.began if batches else 0.0,
        waited=sum(batch.waited for batch in steady) / max(1, len(steady)),
        parts=_parts(record),
        loads=_loads(record.spans),
        bytes=record.payload * _per_batch(record),
        workers=record.policy.workers,
        kind=record.policy.kind,
    )


def _per_batch(record: Record) -> float:
    """What to multiply a sum over all answered tickets with to get a batch's share."""
    batches = len(record.timings)
    if not batches:
        return 0.0
    last = record.program.last
    # Tickets that were answered but not delivered when the run was stopped made batches too.
    made = record.answered.get(last.number, 0) if last.single else batches
    return 1.0 / max(made, batches)


def _parts(record: Record) -> tuple[TimedPart, ...]:
    program = record.program
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
    every = max(1, len(record.timings))
    tail = sorted((o, s) for o, s in record.tail.items() if o != RUN)
    parts += [TimedPart("tail", nodes[ordinal].op.describe(), spent / every, ordinal) for ordinal, spent in tail]
    decoding = [b.got - b.asked - b.waited - b.tail for b in record.timings[1:] or record.timings]
    parts.append(TimedPart("transport", "decoding and dealing out, in the consumer", max(0.0, _mean(decoding))))
    steps = [max(0.0, over - batch.got) for batch, over in record.steps()]
    parts.append(TimedPart("step", "the training loop", _mean(steps)))
    return tuple(parts)


def _mean(seconds: list[float]) -> float:
    return sum(seconds) / max(1, len(seconds))


def _in_workers(record: Record) -> tuple[float, dict[int, float]]:
    """Seconds of all tickets, and of each op in them."""
    busy, ops = 0.0, dict[int, float]()
    for stage, spans in record.spans_by_stage().items():
        for span in spans:
            share = record.answered[stage] / len(spans)
            busy += span.seconds * share
            for ordinal, spent in (span.ops or {}).items():
                ops[ordinal] = ops.get(ordinal, 0.0) + spent * share
    return busy, ops


def _loads(spans: list[Span]) -> tuple[WorkerLoad, ...]:
    by_stage: dict[int, float] = {}
    for span in spans:
        by_stage[span.stage] = by_stage.get(span.stage, 0.0) + span.seconds
    costliest = max(by_stage, key=by_stage.__getitem__, default=None)
    loads = []
    for number in sorted({span.worker for span in spans}):
        tickets = [span for span in spans if span.worker == number]
        usual = [span.seconds for span in tickets if span.stage == costliest]
        busy = sum(span.seconds for span in tickets)
        loads.append(WorkerLoad(number, len(tickets), busy, median(usual) if usual else 0.0))
    return tuple(loads)
