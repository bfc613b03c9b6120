"""Blame: which sample kills its worker, where no memory can be read after a death.

The first death in a ticket names nobody; from then on the ticket runs alone and *watched*: its worker tells a witness
each position beforehand. Two deaths at the same position make that sample poison. Nothing is skipped in a stream: more
than five deaths in the same block are too many.
"""

from collections import Counter

from headrace.engine.wire.messages import Ticket
from headrace.engine.workers.ray.calls import describe, name_of
from headrace.errors import PoisonSample

MOST_IN_A_STREAM = 5


class Blame:
    """What deaths have been held against which tickets."""

    def __init__(self, on_poison: str) -> None:
        self._on_poison = on_poison
        self._deaths: Counter[tuple[int, ...]] = Counter()

    def watched(self, ticket: Ticket) -> bool:
        return name_of(ticket) in self._deaths

    def strike(self, ticket: Ticket, position: int | None, why: str) -> None:
        """The ticket ran, at `position` if that is known, when its worker died: the second time it is poison."""
        name = name_of(ticket)
        self._deaths[name] += 1
        if ticket.strand is not None:
            if self._deaths[name] > MOST_IN_A_STREAM:
                raise PoisonSample(
                    f"the worker that reads a stream {why}, {self._deaths[name]} times in {describe(ticket)}; "
                    f"look at it with workers=0"
                )
            return
        if position is None:
            return
        self._deaths[*name, position] += 1
        if self._deaths[*name, position] < 2:
            return
        if self._on_poison == "raise":
            raise PoisonSample(
                f"the sample at position {position} ended its worker twice: it {why} ({describe(ticket)}); "
                f"look at it with workers=0, or leave such samples out with on_poison='skip'"
            )
        ticket.avoid = (*ticket.avoid, position)
