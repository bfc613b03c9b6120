"""Meter: what happened, in plain counters."""

from typing import Any


class Meter:
    """Counters of one loader, over all its epochs."""

    __slots__ = ("batches", "busy", "samples", "skips", "tickets", "waited")

    def __init__(self) -> None:
        self.waited = 0.0
        """Seconds the consumer waited for a reply."""
        self.busy: dict[int, float] = {}
        """Seconds that workers spent on tickets, by stage."""
        self.tickets = 0
        self.batches = 0
        self.samples = 0
        self.skips: list[Any] = []

    def count(self, stage: int, reply: Any) -> None:
        self.tickets += 1
        if reply.seconds:
            self.busy[stage] = self.busy.get(stage, 0.0) + reply.seconds
        payload = reply.ticket.payload
        if stage == 0 and type(payload) is tuple and len(payload) == 3:
            self.samples += payload[1] - payload[0] + len(payload[2])
