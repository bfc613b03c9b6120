"""What another number of workers, or a wider window, would give: a simulation.

The recorded tickets are dealt out again: `workers` take them in order, at most `window` are issued and not delivered,
batches are delivered in order, the training step takes as long as it took. Work that computes cannot use more cores
than there are, which sets a floor.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from headrace.engine.tuning import available
from headrace.observe.profile.breakdown import Breakdown
from headrace.observe.profile.record import Record

TICKETS = 2000
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
GOOD = 0.95
"""Fewer workers that reach this part of the best rate are recommended."""
FILLED = 0.8
"""Workers that use this part of the cores count as using all of them."""


@dataclass(frozen=True, slots=True)
class Forecast:
    workers: int
    window: int
    wall: float
    """Seconds per batch."""


def forecast(record: Record, breakdown: Breakdown, cores: int | None = None) -> tuple[list[Forecast], Forecast | None]:
    """Forecasts for several numbers of workers, and the one to take: None where no work was recorded."""
    work = _durations(record, breakdown)
    if not work:
        return [], None
    head = sum(part.seconds for part in breakdown.parts if part.room == "head")
    consumer = sum(part.seconds for part in breakdown.parts if part.in_consumer)
    cores = cores or available()
    computing = 1.0 if breakdown.computing is None else breakdown.computing
    mean = sum(work) / len(work)
    # All that computes shares the cores: workers, head and training process.
    floor = (computing * (mean + head) + consumer) / cores
    now = max(1, breakdown.workers)
    pairs = sorted([(workers, 8 * workers) for workers in {*COUNTS, now}] + [(now, 32 * now)])
    simulated = {pair: max(simulate(work, *pair, consumer, head), floor) for pair in pairs}
    if simulated[now, 32 * now] > GOOD * simulated[now, 8 * now]:
        del simulated[now, 32 * now]  # a wider window gives nothing: not worth a line
    # The simulation of how it is run now, beside what was measured, says how far the two are apart.
    usual = mean + head + consumer if breakdown.kind == "inline" else simulated[now, 8 * now]
    found = [Forecast(*pair, wall * breakdown.wall / usual) for pair, wall in simulated.items()]
    # Workers that fill the cores wait for each other, not for a disk, whatever `computing` says.
    filled = computing * now >= FILLED * cores
    most = cores if filled or not computing else max(cores, int(cores / computing))
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
    """The seconds that each batch costs workers: as uneven as the tickets of the stage that costs most, scaled up to
    the work of all stages."""
    stages = record.spans_by_stage().values()
    spans = max(([span.seconds for span in stage] for stage in stages), key=sum, default=[])
    parallel = sum(
        part.seconds for part in breakdown.parts if part.room in ("work", "transport") and not part.in_consumer
    )
    if sum(spans) <= 0 or parallel <= 0:
        return []
    scale = parallel * len(spans) / sum(spans)
    return [seconds * scale for seconds in islice(cycle(spans), TICKETS)]
