"""Where the time of a loader goes, what limits its speed, and what more workers would give.

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
from headrace.observe.profile.predict import Forecast, forecast
from headrace.observe.profile.record import Record
from headrace.observe.profile.trace import events
from headrace.observe.profile.verdict import Verdict, judge
from headrace.observe.profile.watch import Watch
from headrace.observe.units import count, duration, size

__all__ = ["Breakdown", "Forecast", "Profile", "Record", "Verdict", "Watch", "profile"]


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

    @cached_property
    def forecasts(self) -> tuple[list[Forecast], Forecast | None]:
        return forecast(self.record, self.breakdown)

    def data(self) -> dict[str, Any]:
        """All of it as plain data."""
        breakdown = self.breakdown
        found, take = self.forecasts
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
            "workers replaced": self.record.retries,
            "verdict": asdict(self.verdict),
            "seconds a batch": [asdict(part) for part in breakdown.parts],
            "workers seen": [asdict(load) for load in breakdown.loads],
            "cores": available(),
            "forecast": [asdict(f) for f in found],
            "recommended": asdict(take) if take is not None else None,
        }

    def text(self) -> str:
        """A few lines for a terminal."""
        breakdown = self.breakdown
        parts = sorted(breakdown.parts, key=lambda part: -part.seconds)
        return "\n".join(
            [
                self.verdict.text(),
                "",
                f"{count(breakdown.batches)} batches, {_rate(breakdown)}, the training loop waits "
                f"{breakdown.waiting:.0%} of the time; the first batch came after {duration(breakdown.start)}",
                f"workers={breakdown.workers} ({breakdown.kind}), {size(breakdown.bytes)} a batch",
                "",
                "a batch takes",
                *(f"  {duration(part.seconds):>9}  {part.room:10}{part.name}" for part in parts),
                "",
                *self._advice(),
            ]
        )

    def _advice(self) -> list[str]:
        found, take = self.forecasts
        if take is None:
            return []
        cores = available()
        lines = [f"so many workers would give, at best, on this machine ({cores} core{'s' * (cores > 1)})"]
        now = self.breakdown.wall
        for f in found:
            mark = "  <- enough" if f is take else ""
            lines.append(f"  workers={f.workers:<3} window={f.window:<4} {now / f.wall:5.2f}x of now{mark}")
        return lines

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
