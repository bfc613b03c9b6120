"""Balanced: steps of all ranks together, each divided among the ranks by the cost of its samples.

Its `Position` counts samples in the order of the steps: every step takes the next samples of that order, on any number
of ranks. So a snapshot is a number here too, and loads in any world.
"""

from collections.abc import Iterator
from typing import Any

from headrace.engine.feeds.dealt import Deal, Dealt
from headrace.engine.feeds.place import Setting
from headrace.engine.feeds.positions import Position, check_inside
from headrace.errors import BadOption, SnapshotRefused
from headrace.op import Indexed
from headrace.ops.text.balance import Balance
from headrace.pipe.cursor import op_seed
from headrace.plan.balance import deal_by_cost


def balanced(setting: Setting, op: Balance[Any], indexed: Indexed, start: int, drops: bool) -> Dealt:
    """The tickets of this rank from the sample number `start` on."""
    return Dealt(_deals(setting, op, indexed, start, drops), setting.epoch, lambda done, _: Position(done))


def _deals(setting: Setting, op: Balance[Any], indexed: Indexed, start: int, drops: bool) -> Iterator[Deal]:
    program, world = setting.program, setting.world
    check_inside(start, indexed.length)
    ordinal = next(number for number, node in enumerate(program.pipe.nodes()) if node.op is op)
    order = op.steps(indexed, op_seed(program.seed, setting.epoch, ordinal))
    ranks, first = world.share_ranks, min(start // order.per_window, order.windows - 1)
    done = first * order.per_window
    for number in range(first, order.windows):
        steps = order.window(number)
        if number == order.windows - 1:
            steps = _last(steps, ranks, drops, op.plan.rows)
        for step in steps:
            done += len(step)
            if done <= start:
                continue
            if done - len(step) < start:
                raise SnapshotRefused(
                    f"the snapshot stands at sample {start}, inside a step of this pipe: it was taken with other steps"
                )
            shares = deal_by_cost(order.costs(step), ranks)
            share = tuple(step[i] for i in shares[world.share_rank])
            before = done - len(step)
            yield Deal(before + world.share_rank, (0, 0, share), before, done)


def _last(steps: list[list[int]], ranks: int, drops: bool, rows: int | None) -> list[list[int]]:
    """The last steps of an epoch: one with too few samples for all ranks is joined to the one before, or dropped."""
    if drops and steps and (len(steps[-1]) < ranks or (rows is not None and len(steps[-1]) < rows)):
        return steps[:-1]
    if steps and len(steps[-1]) < ranks:
        if len(steps) < 2:
            raise BadOption(
                f"{len(steps[-1])} samples cannot be shared among {ranks} ranks so that each has at least one; use "
                "fewer ranks, or ends='drop'"
            )
        return [*steps[:-2], steps[-2] + steps[-1]]
    return steps
