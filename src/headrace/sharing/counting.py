"""Counting: which programs ranks share by counts, the feed of these, and places that were taken in another world."""

from dataclasses import replace
from functools import partial
from typing import Any

from headrace.engine.epoch import Start
from headrace.engine.feeds.counted import Counted, Evaluated
from headrace.engine.feeds.positions import Position, check_inside
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunPlace
from headrace.engine.program import Program, Stage
from headrace.errors import SnapshotRefused
from headrace.op import Each, Flat
from headrace.plan.reach import Reach, Standing
from headrace.plan.share import Payload, Share
from headrace.plan.world import World

FIRST = 8
"""Positions of a rank in the first round of own outputs, where one may have many."""


def countable(program: Program) -> bool:
    """Whether each position has outputs of its own, which any rank could make: they are regrouped once at most."""
    first, last = program.stages[0], program.last
    return (
        program.indexed
        and len(program.stages) <= 2
        and not program.tail
        and first.balance is None
        and (first is last or last.single or not last.nodes)
    )


def by_position(program: Program, epoch: int) -> bool:
    """Whether outputs are dealt by position: ops choose, and nobody reads much for one sample."""
    chooses = all(
        isinstance(node.op, Each) or (isinstance(node.op, Flat) and node.op.chooses) for node in deciding(program)
    )
    return chooses and program.positions(epoch).parts is None


def deciding(program: Program) -> list[Any]:
    """The nodes that are run on one position."""
    return list(program.stages[0].ops)


def with_pass_through(program: Program) -> Program:
    """The program with one more stage, in which outputs are only handed on."""
    if len(program.stages) > 1:
        return program
    return replace(program, stages=(*program.stages, Stage(1, (), (), "refs", None, False, "ranks share outputs")))


def alone(program: Program, world: World, ends: str, epoch: int, at: EpochPlace | None) -> Start:
    """The part of one rank, in a process that evaluates all positions."""
    assert at is None or isinstance(at, RunPlace)
    return Start(at, lambda at: evaluated(program, world, ends, epoch, at, None))


def evaluated(program: Program, world: World, ends: str, epoch: int, at: RunPlace | None, tell: Any) -> Evaluated:
    """The feed of the first stage. `tell`: begins a round among the ranks; None: there are no others."""
    from headrace.plan.counted import MANY, CountedSteps, Lane  # (here: it needs numpy)

    length, batch = _positions(program, ends, epoch)
    standing, passed = _standing(at)
    check_inside(max((reach.position for reach in standing.reached if reach.ranks == 1), default=0), length)
    ranks, rank, last = world.share_ranks, world.share_rank, program.last
    lanes = ranks if tell is not None else 1
    own = not by_position(program, epoch)
    steps = CountedSteps(
        length, last.group or 1, ranks, rank, program.ends(1, ends), standing, gone=passed, own=own,
        single=last.group is None, first=(1 if program.block == 1 else FIRST) if own else MANY, lanes=lanes,
    )  # fmt: skip
    deciders = [node.op.describe() for node in deciding(program) if isinstance(node.op, Flat)]
    return Evaluated(
        steps, Lane(rank if lanes > 1 else 0, lanes, standing.reached, length), ranks, rank, tell, epoch,
        program.block, batch, checks=program.block > 1, ops=" or ".join(deciders) or "what fails",
    )  # fmt: skip


def _positions(program: Program, ends: str, epoch: int) -> tuple[int, Any]:
    """How many positions there are; and, of a head in batches, the samples of each."""
    length, first = program.positions(epoch).length, program.stages[0]
    if first.group is None:
        return length, None
    share = Share(length, first.group, policy=program.ends(0, ends))
    return share.steps, partial(_batch, share)


def _batch(share: Share, number: int) -> Payload:
    return share.block(number).payload()


def _standing(at: RunPlace | None) -> tuple[Standing, int]:
    """Where the job stands at a place, and how many outputs behind that are delivered too."""
    if at is None or at.place is None:
        return Standing(), 0
    assert isinstance(at.place, Regrouped)
    assert isinstance(at.place.source, Counted)
    return Standing(at.place.source.reached, at.place.base, at.skipped), at.place.source.passed


def counted_place(at: RunPlace, program: Program) -> RunPlace:
    """A place that was taken in any world, for ranks that count."""
    place, passed, base = at.place, at.gone, 0
    if isinstance(place, Regrouped):
        passed, base, place = passed + place.offset, place.base + at.gone, place.source
    if isinstance(place, Counted):
        return replace(at, place=Regrouped(replace(place, passed=place.passed + passed), 0, base), gone=0)
    if place is None:
        return replace(at, place=Regrouped(Counted((), passed), 0, passed), gone=0)
    if not isinstance(place, Position) or place.ranks > 1:
        return at  # (`fit` refuses it)
    position, group = place.position, program.stages[0].group
    if group is not None:
        if position % group:
            raise SnapshotRefused(
                f"the snapshot stands at sample {position}, inside a batch of {group}: ops after batch() decide here "
                "how many samples there are; continue with batches of the size that they had"
            )
        position //= group
    if at.place is place:
        base = position + passed
    return replace(at, place=Regrouped(Counted((Reach(0, 1, position, 0),), passed), 0, base), gone=0)


def uncounted_place(at: RunPlace, program: Program) -> RunPlace | None:
    """A place that ranks have counted, for one process, if that can continue from it without counts."""
    groups = at.place
    assert isinstance(groups, Regrouped)
    if not isinstance(groups.source, Counted):
        return at
    here, group = groups.source.at_one_position(), program.stages[0].group
    if here is None:
        return None
    if len(program.stages) > 1:
        number = groups.base // (program.last.group or 1)
        return replace(at, place=Regrouped(Position(here.position), here.outputs, groups.base, number))
    # (Where samples that fail are left out, ranks count samples also where one process counts batches.)
    size = group if group is not None and not program.one_to_one else 1
    return replace(at, place=Position(here.position * size), gone=here.outputs)
