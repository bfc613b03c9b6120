"""Counting: which programs ranks share by counts, the feed of these, and places that were taken in another world."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from headrace.engine.epoch import Start
from headrace.engine.feeds.counted import Counted, Evaluated
from headrace.engine.feeds.place import Place, chain
from headrace.engine.feeds.positions import Position, check_inside
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunPlace
from headrace.engine.program import Program, Stage
from headrace.errors import SnapshotRefused
from headrace.op import Flat
from headrace.plan.reach import Reach, Standing
from headrace.plan.share import Payload, Share
from headrace.plan.world import World

FIRST = 8
"""Positions of a rank in the first round of own outputs, where one may have many."""


def with_pass_through(program: Program) -> Program:
    """The program with one more stage, in which outputs are only handed on."""
    if len(program.stages) > 1:
        return program
    return replace(program, stages=(*program.stages, Stage(1, (), (), "refs", None, False, "ranks share outputs")))


def alone(program: Program, world: World, ends: str, epoch: int, at: EpochPlace | None) -> Start:
    """The part of one rank, in a process that evaluates all positions."""
    assert at is None or isinstance(at, RunPlace)
    return Start(at, lambda at: evaluated(program, world, ends, epoch, at, None))


def evaluated(
    program: Program, world: World, ends: str, epoch: int, at: RunPlace | None, tell: Any, checks: bool = False
) -> Evaluated:
    """The feed of the first stage. `tell`: begins a round among the ranks; None: there are no others."""
    from headrace.plan.counted import MANY, CountedSteps, Lane  # (here: it needs numpy)

    length, batch = _positions(program, ends, epoch)
    standing, passed = _standing(at)
    check_inside(max((reach.position for reach in standing.reached if reach.ranks == 1), default=0), length)
    ranks, rank, last = world.share_ranks, world.share_rank, program.last
    lanes = ranks if tell is not None else 1
    groups = [stage.group or 1 for stage in program.stages[1:]]
    own = not program.deals_by_position(epoch)
    end = program.ends(last.number, ends)
    if len(groups) > 1 and end != "drop":
        end = "short"  # (the last stage fills its batches itself)
    steps = CountedSteps(
        length, prod(groups), ranks, rank, end, standing, gone=passed, own=own,
        whole=prod(groups[:-1]), drops=any(stage.drop_last for stage in program.stages[1:-1]),
        single=last.group is None, first=(1 if program.block == 1 else FIRST) if own else MANY, lanes=lanes,
    )  # fmt: skip
    deciders = [node.op.describe() for node in program.stages[0].ops if isinstance(node.op, Flat)]
    return Evaluated(
        steps, Lane(rank if lanes > 1 else 0, lanes, standing.reached, length), ranks, rank, tell, epoch,
        program.block, batch, checks=checks and program.block > 1, ops=" or ".join(deciders) or "what fails",
        group=groups[0] if len(groups) > 1 else None,
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
    first, groups, *_ = chain(at.place)
    assert isinstance(first, Counted)
    assert isinstance(groups, Regrouped)
    return Standing(first.reached, groups.base, at.skipped), first.passed


def counted_place(at: RunPlace, program: Program) -> RunPlace:
    """A place that was taken in any world, for ranks that count."""
    first, *later = (Position(),) if at.place is None else chain(at.place)
    groups = [place for place in later if isinstance(place, Regrouped)]
    if not isinstance(first, Position | Counted) or (isinstance(first, Position) and first.ranks > 1):
        return at  # (`fit` refuses it)
    passed = at.gone
    for place, stage in reversed(list(zip(groups, program.stages[1:], strict=False))):
        passed = passed * (stage.group or 1) + place.offset  # in outputs of the stage before
    base = groups[0].base + passed - groups[0].offset if groups else passed
    if isinstance(first, Counted):
        here = replace(first, passed=first.passed + passed)
    else:
        number = _number(first.position, program)
        here = Counted((Reach(0, 1, number, 0),) if number else (), passed)
        base += 0 if groups else number
    return replace(at, place=_grouped(here, 0, base, 0, groups[1:], program), gone=0)


def _number(position: int, program: Program) -> int:
    """The number of a position where the head is read in batches, if it is."""
    group = program.stages[0].group
    if group is not None and position % group:
        raise SnapshotRefused(
            f"the snapshot stands at sample {position}, inside a batch of {group}: ops after batch() decide here how "
            "many samples there are; continue with batches of the size that they had"
        )
    return position // (group or 1)


def _grouped(
    first: Place, offset: int, base: int, number: int, later: Sequence[Regrouped], program: Program
) -> Regrouped:
    """The place of the last stage: `base` and `number` are those of the second stage, `later` has those after it."""
    found = Regrouped(first, offset, base, number)
    for stage in program.stages[2:]:
        old = later[stage.number - 2] if stage.number - 2 < len(later) else None
        found = Regrouped(found, 0, 0 if old is None else old.base, 0 if old is None else old.number)
    return found


def uncounted_place(at: RunPlace, program: Program) -> RunPlace | None:
    """A place that ranks have counted, for one process, if that can continue from it without counts."""
    assert at.place is not None
    first, second, *later = chain(at.place)
    assert isinstance(first, Counted)
    assert isinstance(second, Regrouped)
    here, group = first.at_one_position(), program.stages[0].group
    if here is None:
        return None
    if len(program.stages) == 1:
        # (Where samples that fail are left out, ranks count samples also where one process counts batches.)
        size = group if group is not None and not program.one_to_one else 1
        return replace(at, place=Position(here.position * size), gone=here.outputs)
    number = second.base // (program.stages[1].group or 1)
    groups = [place for place in later if isinstance(place, Regrouped)]
    return replace(at, place=_grouped(Position(here.position), here.outputs, second.base, number, groups, program))
