"""Meter: what happened, in plain counters."""

from typing import Any

BRINGING = 40e-6
"""Seconds that the consumer and the system spend on a small ticket, and no worker sees."""
MEANINGFUL = 50
"""Tickets before anything is said about them."""
RUN = -1
"""Stands for the engine itself among the numbers of ops."""


class Meter:
    """Counters of one loader, over all its epochs."""

    __slots__ = ("batches", "busy", "on_skip", "ops", "sampled", "skips", "tail", "tickets", "waited")

    def __init__(self) -> None:
        self.waited = 0.0
        """Seconds the consumer waited for a reply."""
        self.busy: dict[int, float] = {}
        """Seconds that workers spent on tickets, by stage."""
        self.tickets = 0
        self.batches = 0
        self.ops: dict[int, float] = {}
        self.sampled = 0.0
        """Seconds that the timed tickets took in all, and in each op."""
        self.skips: list[Any] = []
        self.on_skip: Any = None
        """Called with epoch, stage and the samples that failed (`messages.Skip`) when their turn has come."""
        self.tail: Any = None
        """A Clock for the ops that run in the consumer, if somebody wants to know; the wait for workers under RUN."""

    def count(self, stage: int, reply: Any) -> None:
        self.tickets += 1
        if reply.seconds:
            seconds, by_op = reply.seconds[:2]
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
        """Where workers cost more than they give: what that would have taken without them; else nothing."""
        if self.tickets < MEANINGFUL or not self.sampled:
            return ""
        busy = sum(self.busy.values())
        work = busy * sum(self.ops.values()) / self.sampled
        brought = busy - work + self.tickets * BRINGING
        if work >= brought:
            return ""
        return (
            f"workers cost more than they give: a ticket is {1e6 * work / self.tickets:.0f} us of work, and about "
            f"{1e6 * brought / self.tickets:.0f} us of packing and bringing it over; workers=0 is likely faster"
        )

    def by_op(self) -> dict[int, float]:
        """Seconds in each op, by its number: what the timed tickets took, scaled up to all tickets."""
        scale = sum(self.busy.values()) / self.sampled if self.sampled else 0.0
        return {ordinal: spent * scale for ordinal, spent in sorted(self.ops.items())}
