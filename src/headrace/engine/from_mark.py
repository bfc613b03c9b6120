"""From a mark: how an epoch begins at any place in it - a feed per stage, each from its part of the mark."""

from collections.abc import Callable
from typing import Any

from headrace.engine.feeds import Batches, Block, Dealt, Items, Listed, Mark, Strands
from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.regroup import Regroup
from headrace.errors import SnapshotRefused
from headrace.plan.world import World


def inputs_before(stages: int, mark: Mark, world: World) -> list[int]:
    """How many samples of this rank each stage has had before the mark."""
    if mark is None or mark[0] == "s":
        return [0] * stages
    if mark[0] != "r":
        return [mark[1] // world.share_ranks if mark[0] == "p" else mark[1]]
    # What comes out of a stream is numbered over all ranks, what comes later is a rank's own.
    ranks = world.share_ranks if stages == 2 and (mark[1] is None or mark[1][0] == "s") else 1
    return [*inputs_before(stages - 1, mark[1], world), mark[3] // ranks]


def feeds_from(
    program: Program,
    policy: Policy,
    epoch: int,
    world: World,
    ends: str,
    mark: Mark,
    listed: Any,
    free: Callable[[Block], None],
) -> list[Any]:
    """One feed per stage, each from its part of the mark."""
    marks: list[Mark] = []
    for _ in program.stages[1:]:
        marks.append(mark)
        mark = None if mark is None else mark[1]
    marks.append(mark)
    marks.reverse()
    first = program.stages[0]
    feeds: list[Any] = []
    if first.feed == "positions" and listed is not None:
        feeds.append(Dealt(listed, epoch))
    elif first.feed == "positions":
        indexed = program.head.indexed(program.seed, epoch)
        assert indexed is not None
        start = 0 if marks[0] is None else marks[0][1]
        if start > indexed.length:
            raise SnapshotRefused(f"the snapshot stands at sample {start}, but there are only {indexed.length} now")
        if first.group is None:
            feeds.append(Items(program.block, world, epoch, indexed.length, start))
        else:
            feeds.append(Batches(first, world, ends, epoch, indexed.length, start))
    elif first.feed == "listed":
        feeds.append(Listed(listed or iter(()), epoch, 0 if marks[0] is None else marks[0][1]))
    else:
        feeds.append(Strands(program.strands, epoch, policy.prefetch, marks[0], free))
    # Ranks that read the same stream divide it at the first stage after it; what comes later is a rank's own.
    ranks, rank = (world.share_ranks, world.share_rank) if first.feed == "strand" else (1, 0)
    for stage, its in zip(program.stages[1:], marks[1:], strict=True):
        own = (world.share_ranks, world.share_rank) if ranks == 1 else (1, 0)
        feeds.append(Regroup(stage, epoch, free, its, ranks, rank, ends, program.block, own))
        ranks, rank = 1, 0
    return feeds
