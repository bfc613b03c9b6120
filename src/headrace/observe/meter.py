"""Meter: what happened, in plain counters."""

from typing import Any


class Meter:
    """Counters of one loader, over all its epochs."""

    __slots__ = ("batches", "busy", "ops", "sampled", "skips", "tickets", "waited")

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

    def count(self, stage: int, reply: Any) -> None:
        self.tickets += 1
        if reply.seconds:
            seconds, by_op = reply.seconds
            self.busy[stage] = self.busy.get(stage, 0.0) + seconds
            if by_op:
                self.sampled += seconds
                for ordinal, spent in by_op.items():
                    self.ops[ordinal] = self.ops.get(ordinal, 0.0) + spent

    def by_op(self) -> dict[int, float]:
        """Seconds in each op, by its number: what the timed tickets took, scaled up to all tickets."""
        scale = sum(self.busy.values()) / self.sampled if self.sampled else 0.0
        return {ordinal: spent * scale for ordinal, spent in sorted(self.ops.items())}
