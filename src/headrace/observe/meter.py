"""Counters: what a loader has done, and what was read of files.

Reads are counted in each thread: what a thread reads while it runs a ticket belongs to that ticket, and travels with
its reply. What is read before there are tickets (footers, indices) is counted as `planned`.
"""

import threading
from typing import Any, NamedTuple

TICKET_SECONDS = 40e-6
"""What a small ticket costs the training process and the system, beside the seconds that its worker reports."""
MIN_TICKETS = 50
"""Advice is given after so many tickets."""
RUN = -1
"""Stands for the engine itself where a number of an op is expected."""


class Reads(NamedTuple):
    """What was read of files."""

    bytes: int = 0
    opens: int = 0
    requests: int = 0
    """Calls that read, of the system or of an object store."""
    retries: int = 0
    """Requests to an object store that had to be made once more."""
    hits: int = 0
    """Files that a disk cache had already."""

    def __str__(self) -> str:
        remote = f", {self.retries} of them again" if self.retries else ""
        cached = f", {self.hits} of them from the disk cache" if self.hits else ""
        return f"{self.bytes} bytes in {self.requests} reads{remote} of {self.opens} opened files{cached}"

    def plus(self, other: "Reads") -> "Reads":
        return Reads(*(mine + others for mine, others in zip(self, other, strict=True)))


class FileMeter(threading.local):
    """What this thread has read since the last call of `taken()`."""

    def __init__(self) -> None:
        self._bytes = self._opens = self._requests = self._retries = self._hits = 0

    def opened(self) -> None:
        self._opens += 1

    def retried(self) -> None:
        self._retries += 1

    def hit(self) -> None:
        self._hits += 1

    def add(self, reads: Reads) -> None:
        """Count what another thread has read for this one."""
        self._bytes += reads.bytes
        self._opens += reads.opens
        self._requests += reads.requests
        self._retries += reads.retries
        self._hits += reads.hits

    def read(self, size: int, requests: int = 1) -> None:
        self._bytes += size
        self._requests += requests

    def taken(self) -> Reads | None:
        """What was read since the last call; None if nothing was."""
        if not (self._opens or self._requests or self._retries or self._hits):
            return None
        found = Reads(self._bytes, self._opens, self._requests, self._retries, self._hits)
        self._bytes = self._opens = self._requests = self._retries = self._hits = 0
        return found


files = FileMeter()


class PlanReads:
    """What this process has read of files before there were tickets: listings, footers, indices."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reads = Reads()

    def note(self) -> None:
        """Count what this thread has read so far as read before there were tickets."""
        with self._lock:
            self.reads = self.reads.plus(files.taken() or Reads())


planned = PlanReads()


class Meter:
    """Counters of one loader, over all its epochs."""

    __slots__ = ("batches", "busy", "on_skip", "ops", "reads", "sampled", "skips", "tail", "tickets", "waited")

    def __init__(self) -> None:
        self.waited = 0.0
        """Seconds the consumer waited for a reply."""
        self.busy: dict[int, float] = {}
        """Seconds that workers spent on tickets, by stage."""
        self.reads = Reads()
        """What workers read of files for tickets."""
        self.tickets = 0
        self.batches = 0
        self.ops: dict[int, float] = {}
        self.sampled = 0.0
        """Seconds that the timed tickets took in all, and in each op."""
        self.skips: list[Any] = []
        self.on_skip: Any = None
        """Called with epoch, stage and the samples that failed (`messages.Skip`), in the epoch's order."""
        self.tail: Any = None
        """Under the profiler, a Clock for the ops that run in the training process; under RUN, the wait for workers."""

    def count(self, stage: int, reply: Any) -> None:
        self.tickets += 1
        if reply.seconds:
            seconds, by_op, _, reads = reply.seconds
            if reads is not None:
                self.reads = self.reads.plus(Reads(*reads))
            self.busy[stage] = self.busy.get(stage, 0.0) + seconds
            if by_op:
                self.sampled += seconds
                for ordinal, spent in by_op.items():
                    self.ops[ordinal] = self.ops.get(ordinal, 0.0) + spent

    def skip(self, epoch: int, stage: int, skipped: Any) -> None:
        self.skips.extend(skipped)
        if self.on_skip is not None:
            self.on_skip(epoch, stage, skipped)

    def advice(self) -> str:
        """A sentence, where tickets cost more on their way than the work in them takes; else empty."""
        if self.tickets < MIN_TICKETS or not self.sampled:
            return ""
        busy = sum(self.busy.values())
        work = busy * sum(self.ops.values()) / self.sampled
        transport = busy - work + self.tickets * TICKET_SECONDS
        if work >= transport:
            return ""
        return (
            f"workers cost more than they give: a ticket is {1e6 * work / self.tickets:.0f} us of work, and about "
            f"{1e6 * transport / self.tickets:.0f} us of packing and bringing it over; workers=0 is likely faster"
        )

    def by_op(self) -> dict[int, float]:
        """Seconds in each op, by its number: what the timed tickets took, scaled up to all tickets."""
        scale = sum(self.busy.values()) / self.sampled if self.sampled else 0.0
        return {ordinal: spent * scale for ordinal, spent in sorted(self.ops.items())}
