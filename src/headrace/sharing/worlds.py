"""Worlds: the place of ranks that share by arithmetic, taken in one world, translated for the ranks of another.

A place that cannot be translated is refused with the reason, so that no sample comes twice or is lost.
"""

from dataclasses import replace

from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.feeds.strands import InStrands
from headrace.engine.places import RunPlace
from headrace.engine.program import Program
from headrace.errors import SnapshotRefused
from headrace.op import Each
from headrace.plan.world import World


def in_world(at: RunPlace, program: Program, world: World) -> RunPlace:
    """A place of ranks that share by arithmetic, taken in any world, for this world.

    Where samples stay single, all ranks stop inside a block, after the same number of samples. Another number of ranks
    has other blocks, so for those the place is a position:

        2 ranks, blocks of 4, 3 of each delivered    0 2 4 6 | 1 3 5 7    ->    everything below 6 is delivered
    """
    place, ranks = at.place, world.share_ranks
    if isinstance(place, InStrands) and len(program.stages) > 1:
        # One process read the bare stream; here ranks part behind it.
        return replace(at, place=Regrouped(place, at.gone), gone=0)
    if isinstance(place, Regrouped) and isinstance(place.source, InStrands):
        gone = at.gone * place.ranks
        if len(program.stages) == 1:
            return replace(at, place=place.source, gone=place.offset + gone)
        if at.gone and place.ranks != ranks:
            _check_one_to_one(at, program)
            moved = replace(place, offset=place.offset + gone, base=place.base + gone)
            return replace(at, place=moved, gone=0)
    if isinstance(place, Position) and at.gone and place.ranks != ranks:
        _check_one_to_one(at, program)
        return replace(at, place=Position(place.position + at.gone * place.ranks), gone=0)
    return at


def _check_one_to_one(at: RunPlace, program: Program) -> None:
    """Raise unless every input of a block has exactly one output."""
    if program.skips:
        raise SnapshotRefused(
            "this snapshot stands inside blocks of single samples of which some may have been left out "
            "(on_error='skip'), so what other ranks have to go on with is not known; go on with as many ranks as there "
            "were, or batch the samples"
        )
    if not all(isinstance(node.op, Each) for stage in program.stages for node in stage.ops):
        raise SnapshotRefused(
            "this snapshot stands inside blocks of single samples behind an op that changes their number; go on with "
            "as many ranks as there were"
        )
