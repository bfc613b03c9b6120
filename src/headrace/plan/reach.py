"""Reach: what the ranks of a job have delivered, where each position has a number of outputs of its own."""

from typing import NamedTuple

FAILED = -1
"""In place of how many outputs a position has: it has failed."""
VOID = -2
"""Likewise: it was in a ticket that has failed as a whole, and has none."""
SKIPS = 32
"""The bits above this one of what a rank tells of a position say how many samples were left out there."""


class Reach(NamedTuple):
    """Of the positions p with p mod `ranks` = `residue`, all below `position` are delivered, and so many outputs of
    that one. (These names stand in snapshots.)"""

    residue: int = 0
    ranks: int = 1
    position: int = 0
    outputs: int = 0


class Standing(NamedTuple):
    """Where the whole job stands."""

    reached: tuple[Reach, ...] = ()
    base: int = 0
    """Outputs delivered so far: random values depend on their numbers."""
    skipped: int = 0
    """Samples that were left out, on a rank on average."""
