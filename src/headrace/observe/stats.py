"""What a loader has done so far, in numbers: `loader.stats()`."""

from dataclasses import dataclass, field, replace

from headrace.observe.meter import Reads


@dataclass(frozen=True, slots=True)
class Stats:
    """What a loader has done so far."""

    epochs: int
    batches: int
    waited: float
    """Seconds the training loop waited for data."""
    busy: dict[str, float]
    """Seconds that workers spent, by stage of the plan."""
    ops: dict[str, float]
    """Seconds that workers spent in each op: one ticket in sixteen is timed, and scaled up."""
    bytes: int
    """Shared memory in existence."""
    slots: int
    copies: int
    """Batches that were copied out because the user holds many."""
    retries: int
    """Workers that ended and were replaced."""
    skips: int
    """Samples that failed and were left out."""
    made_twice: int = 0
    """Positions that this rank has made although another rank makes them too (behind ops that change counts)."""
    reads: Reads = field(default_factory=Reads)
    """What this rank has read of files for samples: bytes, opens, requests."""
    workers: int = 0
    """How many there are now: what was asked for, or what "auto" has come to."""
    prefetch: int = 2
    tried: dict[int, float] = field(default_factory=dict)
    """With workers="auto": batches a second by the number of workers, as far as they were tried."""
    advice: str = ""
    """A sentence, where workers cost more time than they save; else empty."""
    autosave: str = ""
    """Why the last snapshot could not be written; empty while they can."""

    def __str__(self) -> str:
        """A table; rows that would be empty or zero are left out."""
        from headrace.observe.units import count, duration, op_of, size

        rows = [
            ("epochs", count(self.epochs)),
            ("batches", count(self.batches)),
            ("waited for data", duration(self.waited)),
            *((f"busy in {name}", duration(spent)) for name, spent in self.busy.items()),
            *((f"  {op_of(name)}", duration(spent)) for name, spent in self.ops.items()),
            ("workers", f"{self.workers}, {self.prefetch} batches ahead each" if self.workers else "none"),
            ("shared memory", f"{size(self.bytes)} in {self.slots} slots"),
        ]
        if self.reads.bytes or self.reads.opens:
            read = f"{size(self.reads.bytes)} in {count(self.reads.requests)} reads, {count(self.reads.opens)} opens"
            again = f", {count(self.reads.retries)} of them again" if self.reads.retries else ""
            cached = f", {count(self.reads.hits)} files from the disk cache" if self.reads.hits else ""
            rows.append(("read from files", read + again + cached))
        rows += [
            (name, count(number))
            for name, number in (
                ("batches copied out", self.copies),
                ("positions made twice", self.made_twice),
                ("workers replaced", self.retries),
                ("samples skipped", self.skips),
            )
            if number
        ]
        rows += [(f"tried {n} workers", f"{rate:.1f} batches/s") for n, rate in sorted(self.tried.items())]
        rows += [(name, text) for name, text in (("advice", self.advice), ("autosave", self.autosave)) if text]
        wide = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{wide}}  {text}" for name, text in rows)

    def after(self, earlier: "Stats") -> "Stats":
        """The sums over this loader and one before it; memory, workers and the like are those of this one."""
        counts = ("epochs", "batches", "waited", "copies", "retries", "skips")
        return replace(
            self,
            busy=_sums(self.busy, earlier.busy),
            ops=_sums(self.ops, earlier.ops),
            advice=self.advice or earlier.advice,
            **{name: getattr(self, name) + getattr(earlier, name) for name in counts},
        )


def _sums(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**other, **one}}
