"""Predict: what another number of workers, or a wider window, would give.

The recorded tickets are dealt out again on paper: `workers` take them in order, at most `window` are issued and not
delivered, batches are delivered in order, the consumer takes as long as it took. Work that computes cannot use more
cores than there are, which sets a floor.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from headrace.engine.tuning import available
from headrace.observe.profile.breakdown import Breakdown, warm
from headrace.observe.profile.watch import Record

TICKETS = 2000
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
GOOD = 0.95
"""Of the best, what is good enough to be recommended with fewer workers."""

FILLED = 0.8
"""Of what the cores can do, what counts as all of it."""


@dataclass(frozen=True, slots=True)
class Forecast:
    workers: int
    window: int
    wall: float
    """Seconds per batch."""


def forecast(record: Record, breakdown: Breakdown, cores: int | None = None) -> tuple[list[Forecast], Forecast | None]:
    """Forecasts for several numbers of workers, and the one to take: None when there is nothing to go by."""
    work = _durations(record, breakdown)
    if not work:
        return [], None
    head = breakdown.total("head")
    consumer = sum(p.seconds for p in breakdown.parts if p.room in ("tail", "step") or p.name.endswith("consumer"))
    cores = cores or available()
    busy = 1.0 if breakdown.busy is None else breakdown.busy
    mean = sum(work) / len(work)
    # All that computes shares the cores, whoever asks for it.
    floor = (busy * (mean + head) + consumer) / cores
    now = max(1, breakdown.workers)
    pairs = sorted([(workers, 8 * workers) for workers in {*COUNTS, now}] + [(now, 32 * now)])
    on_paper = {pair: max(simulate(work, *pair, consumer, head), floor) for pair in pairs}
    if on_paper[now, 32 * now] > GOOD * on_paper[now, 8 * now]:
        del on_paper[now, 32 * now]  # a wider window gives nothing: not worth a line
    # The same rules, applied to how it is run now, say how far paper and truth are apart.
    usual = mean + head + consumer if breakdown.kind == "inline" else on_paper[now, 8 * now]
    found = [Forecast(*pair, wall * breakdown.wall / usual) for pair, wall in on_paper.items()]
    # Workers that fill the cores wait for each other, not for a disk: whatever part of the time they compute.
    filled = busy * now >= FILLED * cores
    most = cores if filled or not busy else max(cores, int(cores / busy))
    helpful = [f for f in found if f.workers <= most]
    best = min(f.wall for f in helpful)
    return found, next(f for f in helpful if f.wall <= best / GOOD)


def simulate(work: Sequence[float], workers: int, window: int, consumer: float, head: float = 0.0) -> float:
    """Seconds per batch when tickets that take `work` seconds each are dealt out in order."""
    free = [0.0] * workers
    delivered: list[float] = []
    now = 0.0
    for number, seconds in enumerate(work):
        ready = (number + 1) * head
        opened = delivered[number - window] if number >= window else 0.0
        begin = max(heapq.heappop(free), ready, opened)
        heapq.heappush(free, begin + seconds)
        now = max(now, begin + seconds) + consumer
        delivered.append(now)
    # The beginning, when nothing is there yet, does not count.
    first = min(len(work) // 4, window)
    return (delivered[-1] - delivered[first]) / (len(work) - 1 - first) if len(work) > first + 1 else delivered[-1]


def _durations(record: Record, breakdown: Breakdown) -> list[float]:
    """What each batch costs workers: as uneven as the tickets of the costliest stage, with the others' share."""
    stages = [warm([s for s in record.recorder.spans if s.stage == n]) for n in record.recorder.answered]
    spans = max(([s.ended - s.began for s in stage] for stage in stages), key=sum, default=[])
    parallel = sum(
        p.seconds for p in breakdown.parts if p.room == "work" or (p.room == "transport" and p.name.endswith("workers"))
    )
    if not spans or parallel <= 0:
        return []
    mean = sum(spans) / len(spans)
    if mean <= 0:
        return []
    return [seconds * parallel / mean for seconds in islice(cycle(spans), TICKETS)]
