"""Blame: which sample kills its worker, where no memory can be read after a death.

The first death in a ticket names nobody; from then on the ticket runs alone and *watched*: its worker tells a witness
each position beforehand. Two deaths at the same position make that sample poison. Nothing is skipped in a stream: more
than five deaths in the same block are too many.
"""

from collections import Counter
from collections.abc import Callable

from headrace.engine.messages import Ticket
from headrace.engine.workers.calls import describe, name_of
from headrace.errors import PoisonSample

MOST_IN_A_STREAM = 5


class Blame:
    """What deaths have been held against which tickets."""

    def __init__(self, on_poison: str, witnessed: Callable[[int], int | None]) -> None:
        self._on_poison = on_poison
        self._witnessed = witnessed
        """The position that a ticket told last, by its number in this run."""
        self._deaths: Counter[tuple[int, ...]] = Counter()

    def watched(self, ticket: Ticket) -> bool:
        return name_of(ticket) in self._deaths

    def strike(self, ticket: Ticket) -> None:
        """The ticket ran when its worker died; a sample of it that has killed twice is left out, or an error."""
        name = name_of(ticket)
        self._deaths[name] += 1
        if ticket.strand is not None:
            if self._deaths[name] > MOST_IN_A_STREAM:
                raise PoisonSample(f"a stream's worker died {self._deaths[name]} times in {describe(ticket)}")
            return
        position = self._witnessed(ticket.seq)
        if position is None:
            return
        self._deaths[*name, position] += 1
        if self._deaths[*name, position] < 2:
            return
        if self._on_poison == "raise":
            raise PoisonSample(
                f"the sample at position {position} killed its worker twice ({describe(ticket)}); "
                f"look at it with workers=0, or leave such samples out with on_poison='skip'"
            )
        ticket.avoid = (*ticket.avoid, position)
