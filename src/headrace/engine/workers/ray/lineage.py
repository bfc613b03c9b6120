"""Lineage: samples that stay where they were made, and how to make them again.

A block whose samples stayed in Ray's object store has `StoredSamples` in their place. The store can be lost with its
node long after the ticket was answered, so `StoredSamples` have a `Recipe`: the ticket that made them, and the recipes
of what that ticket read. A recipe holds no samples: their memory can be freed, and they can still be made once more.
"""

from dataclasses import dataclass
from typing import Any

from headrace.engine.wire.messages import Ticket
from headrace.engine.workers.ray.answers import RayTicket


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How a block of samples was made."""

    ticket: RayTicket
    """A ticket that reads other samples refers to those of `inputs`, by their index there."""
    inputs: tuple["Recipe", ...]
    count: int | None
    """Of a block of a strand: how many samples it has. That depended on time, so it has to be remembered."""


@dataclass(slots=True, eq=False)
class StoredSamples:
    """The samples of a block, in the object store."""

    ref: Any
    recipe: Recipe


def recipe(ticket: Ticket, payload: Any, count: int | None) -> Recipe:
    """The recipe of the `count` samples that `ticket` made when it was sent with `payload`."""
    inputs: tuple[Recipe, ...] = ()
    if ticket.blocks:
        refs, base, stride = ticket.payload
        inputs = tuple(block.outputs.recipe for block, _, _ in refs)
        payload = ([(k, first, stop) for k, (_, first, stop) in enumerate(refs)], base, stride)
    sent = RayTicket(0, ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid, None)
    return Recipe(sent, inputs, None if ticket.strand is None else count)
