"""Worlds: the place of a job, taken in one world, for the ranks of another.

What arithmetic shares goes on at a position. Behind a filter ranks have come to different places, which are dealt anew
(`feeds.elastic`). A place that cannot be given to other ranks is refused with the reason: never a sample twice or lost.
"""

from dataclasses import replace

from headrace.engine.feeds.elastic import InTurns
from headrace.engine.feeds.place import Place
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import RunPlace
from headrace.engine.program import Program
from headrace.plan.turns import Rest
from headrace.plan.world import World

LARGEST = 1024
"""The most positions in one ticket of a single process, where a snapshot does not say how many there were."""


def shares_in_turns(program: Program) -> bool:
    """Whether ranks share this program in turns: positions one by one, and at most one regrouping behind them."""
    return (
        program.indexed
        and program.stages[0].group is None
        and len(program.stages) == 2
        and not program.tail
        and (program.last.single or not program.last.nodes)
    )


def in_turns(at: RunPlace | None, program: Program, world: World, length: int) -> RunPlace:
    """The place of a job whose ranks take positions in turn, for the ranks of this world."""
    ranks, block = world.share_ranks, program.block
    if at is None or at.place is None:
        return RunPlace(Regrouped(InTurns(Rest(), block, ((0, 0),) * ranks)), 0, 0 if at is None else at.skipped)
    groups = at.place
    assert isinstance(groups, Regrouped)
    turns = _turns(groups.source, groups.offset + at.gone)
    here = turns.for_ranks(ranks, block, length)
    base, number = groups.base, groups.number
    if here is not turns:
        # Numbers that no rank has used: random values of batches hang on them.
        base, number = (-(-n * len(turns.progress) // ranks) for n in (base, number))
    return RunPlace(Regrouped(here, 0, base, number), 0, at.skipped)


def _turns(source: Place, gone: int) -> InTurns:
    """The place of the stage before, with what is gone of the ticket there."""
    if isinstance(source, Position):  # of one process
        return InTurns(Rest(source.position), (source.size or LARGEST) if gone else 1, ((0, gone),))
    assert isinstance(source, InTurns)
    if len(source.progress) > 1 or not gone:
        return source
    ((ticket, before),) = source.progress
    return replace(source, progress=((ticket, before + gone),))
