"""Lineage: samples that stay where they were made, and how to make them again.

A block whose samples stayed in Ray's object store has `StoredSamples` in their place. The store can be lost with its
node long after the ticket was answered, so `StoredSamples` have a `Recipe`: the ticket that made them, and the recipes
of what that ticket read. A recipe holds no samples: their memory can be freed, and they can still be made once more.
"""

from dataclasses import dataclass
from typing import Any

from headrace.engine.wire.messages import Ticket


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
class StoredSamples:
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
