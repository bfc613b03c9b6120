"""Lineage: samples that stay where they were made, and how to make them again.

A `Remote` stands in a block for samples in somebody else's memory. That memory can go with its machine, long after the
ticket was answered, so a `Remote` knows its `Recipe`: the ticket that made it, and the recipes of what that ticket
read. A recipe holds no samples: what is spent is free, and can still be made once more.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from headrace.engine.wire.messages import Ticket
from headrace.errors import WorkerDied

LOSSES = 20
"""How often the samples of one ticket may be lost before it is given up."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How a block of samples was made."""

    stage: int
    epoch: int
    number: int
    payload: Any
    """As it is sent; of a refs stage, samples of `inputs` by their index."""
    avoid: tuple[int, ...]
    inputs: tuple["Recipe", ...]
    count: int
    """Of a strand's block, how many samples: that depends on time, so it has to be remembered."""
    strand: bool


@dataclass(slots=True, eq=False)
class Remote:
    """Samples of a block, in the store."""

    ref: Any
    recipe: Recipe


def recipe(ticket: Ticket, payload: Any, count: int) -> Recipe:
    """The recipe of what `ticket` made when it was sent with `payload`."""
    inputs: tuple[Recipe, ...] = ()
    if ticket.blocks:
        refs, base, stride = ticket.payload
        inputs = tuple(block.outputs.recipe for block, _, _ in refs)
        payload = ([(k, first, stop) for k, (_, first, stop) in enumerate(refs)], base, stride)
    strand = ticket.strand is not None
    return Recipe(ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid, inputs, count, strand)


class Losses:
    """How often the samples of each ticket were lost."""

    def __init__(self) -> None:
        self.total = 0
        self._lost: Counter[tuple[int, int, int]] = Counter()

    def count(self, ticket: Ticket) -> None:
        """The samples of a ticket were lost once more."""
        self.total += 1
        name = (ticket.stage, ticket.epoch, ticket.number)
        self._lost[name] += 1
        if self._lost[name] > LOSSES:
            what = f"the samples of {ticket} were lost {LOSSES} times"
            raise WorkerDied(f"{what}; nodes of the cluster come and go: look at `ray status`")
