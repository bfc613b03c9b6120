"""What limits the speed of a run, in one sentence, and what to do about it."""

from dataclasses import dataclass
from statistics import median

from headrace.observe.profile.breakdown import Breakdown, TimedPart, WorkerLoad
from headrace.observe.units import WAITING

SLOW, LOST = 2.0, 0.2
"""A worker is called slow that takes so many times as long as the others, if this part of all work is lost by it."""
SMALL = 64 * 1024
"""Bytes of a batch below which its size is not what makes transport costly."""


@dataclass(frozen=True, slots=True)
class Verdict:
    bound: str
    """"loader" or "consumer"."""
    room: str
    """head, work, transport, tail, step, or worker."""
    name: str
    share: float
    """The part that this takes of the seconds that set the pace."""
    advice: str

    def text(self) -> str:
        who = "the loader" if self.bound == "loader" else "the consumer"
        return f"{who} sets the pace: {self.name} ({self.share:.0%} of its time). {self.advice}"


def judge(breakdown: Breakdown) -> Verdict:
    if breakdown.kind == "inline":
        return _largest(breakdown, list(breakdown.parts), None)
    if breakdown.waiting < WAITING:
        return _largest(breakdown, [part for part in breakdown.parts if part.in_consumer], "consumer")
    slow = _slow_worker(breakdown.loads)
    if slow is not None:
        return slow
    head = [part for part in breakdown.parts if part.room == "head"]
    work = [part for part in breakdown.parts if part.room in ("work", "transport") and not part.in_consumer]
    # What runs in one place counts whole; what is divided among workers counts for one worker's share of it.
    if sum(p.seconds for p in head) >= sum(p.seconds for p in work) / max(1, breakdown.workers):
        return _largest(breakdown, head, "loader")
    return _largest(breakdown, work, "loader")


def _largest(breakdown: Breakdown, parts: list[TimedPart], bound: str | None) -> Verdict:
    total = sum(part.seconds for part in parts)
    worst = max(parts, key=lambda part: part.seconds)
    side = bound or ("consumer" if worst.room in ("step", "tail") else "loader")
    return Verdict(side, worst.room, worst.name, worst.seconds / total if total else 0.0, _advice(worst, breakdown))


def _slow_worker(loads: tuple[WorkerLoad, ...]) -> Verdict | None:
    known = [load for load in loads if load.usual > 0 and load.tickets >= 3]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda load: load.usual)
    others = median(load.usual for load in known if load is not slowest)
    lost = (slowest.usual - others) * slowest.tickets
    busy = sum(load.busy for load in loads)
    if slowest.usual < SLOW * others or lost < LOST * busy:
        return None
    return Verdict(
        "loader",
        "worker",
        f"worker {slowest.number}",
        lost / busy,
        f"It takes {slowest.usual / others:.1f} times as long for a ticket as the others: look at what differs there "
        f"(worker_init, a device or disk of its own, another program on its core).",
    )


def _advice(part: TimedPart, breakdown: Breakdown) -> str:
    if part.room == "head":
        return (
            "It runs in one place, so more workers do not help: move it after sharding_filter() if it treats samples "
            "one by one, make the source random-access, or let strands= divide it."
        )
    if part.room == "work":
        if breakdown.kind == "inline":
            return "There are no workers: workers=1 or more takes it out of the training loop."
        return "More workers divide it, as long as there are cores; or make it cheaper: cache it, or do it once before."
    if part.room == "transport":
        if breakdown.bytes < SMALL:
            return (
                "Batches are small: the way of each costs more than the work on it. Make them larger, or use "
                "workers=0, where nothing travels."
            )
        return (
            "Make batches smaller in bytes: send uint8 and convert on the device, crop before batching, collate into "
            "arrays instead of many objects."
        )
    if part.room == "tail":
        return "It runs in the consumer: move it before the op that must see the whole stream, so that workers run it."
    return "The data is there when it is asked for: more workers give nothing."
