"""Where the time of a loader goes, and what limits its speed.

    from headrace.observe.profile import profile
    print(profile(Loader(pipe, workers=4), consumer=train_step).text())

`profile` runs the loader for some seconds under a clock, with `consumer` in the place of the training step (without it,
batches are taken as fast as they come). To profile a training loop as it is, iterate a `Watch` in place of the loader.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from headrace.engine.tuning import available
from headrace.loader import Loader
from headrace.observe.profile.breakdown import Breakdown, break_down
from headrace.observe.profile.page import page
from headrace.observe.profile.record import Record
from headrace.observe.profile.trace import events
from headrace.observe.profile.verdict import Verdict, judge
from headrace.observe.profile.watch import Watch
from headrace.observe.units import count, duration, size

__all__ = ["Breakdown", "Profile", "Record", "Verdict", "Watch", "profile"]


def profile(
    loader: Loader[Any],
    consumer: Callable[[Any], Any] | None = None,
    *,
    seconds: float | None = 5.0,
    batches: int | None = None,
) -> "Profile":
    """Run `loader` for so long, or for so many batches, and say where the time went."""
    with Watch(loader, seconds=seconds, batches=batches) as watched:
        for batch in watched:
            if consumer is not None:
                consumer(batch)
            del batch  # not held while the next one is fetched: its slot is free
    return Profile(watched.record)


@dataclass(frozen=True)
class Profile:
    """What was seen, and what follows from it."""

    record: Record

    @cached_property
    def breakdown(self) -> Breakdown:
        return break_down(self.record)

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.breakdown)

    def data(self) -> dict[str, Any]:
        """All of it as plain data."""
        breakdown = self.breakdown
        return {
            "pipe": repr(self.record.program.pipe),
            "workers": breakdown.workers,
            "kind": breakdown.kind,
            "batches": breakdown.batches,
            "batches/s": breakdown.rate,
            "samples/s": breakdown.samples * breakdown.rate,
            "waiting": breakdown.waiting,
            "start-up": breakdown.start,
            "bytes a batch": breakdown.bytes,
            "read from files": self.record.reads._asdict(),
            "workers replaced": self.record.retries,
            "verdict": asdict(self.verdict),
            "seconds a batch": [asdict(part) for part in breakdown.parts],
            "workers seen": [asdict(load) for load in breakdown.loads],
            "cores": available(),
        }

    def text(self) -> str:
        """A few lines for a terminal."""
        breakdown, cores = self.breakdown, available()
        parts = sorted(breakdown.parts, key=lambda part: -part.seconds)
        return "\n".join(
            [
                self.verdict.text(),
                "",
                f"{count(breakdown.batches)} batches, {_rate(breakdown)}, the training loop waits "
                f"{breakdown.waiting:.0%} of the time; the first batch came after {duration(breakdown.start)}",
                f"workers={breakdown.workers} ({breakdown.kind}) on {cores} core{'s' * (cores > 1)}, "
                f"{size(breakdown.bytes)} a batch",
                *([f"of files: {self.record.reads}"] if self.record.reads.requests else []),
                "",
                "a batch takes",
                *(f"  {duration(part.seconds):>9}  {part.room:10}{part.name}" for part in parts),
            ]
        )

    def html(self) -> str:
        """One page that needs nothing else."""
        return page(self.data(), self.verdict, self.record, self.breakdown)

    def trace(self) -> dict[str, Any]:
        """For ui.perfetto.dev or chrome://tracing."""
        return events(self.record)


def _rate(breakdown: Breakdown) -> str:
    if not breakdown.wall:
        return "no rate"
    rate = f"{breakdown.rate:.1f} batches/s"
    return rate if breakdown.samples == 1 else f"{rate} ({breakdown.samples * breakdown.rate:.0f} samples/s)"
