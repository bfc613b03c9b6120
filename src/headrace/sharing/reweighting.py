"""Reweighting: other weights of a pipe's mixture, from a place that no rank has reached yet.

Every rank makes the same call, at any moment before it reaches that place. Samples before the place do not change, so
a rank throws away what its workers have prepared beyond the batch at hand, and goes on with the new weights: the
samples are the same whenever the call is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunPlace
from headrace.engine.program import Program
from headrace.errors import BadOption
from headrace.op import Each, Flat
from headrace.ops.branch.journal import Change, stages_in
from headrace.ops.branch.mix import Mix
from headrace.ops.order.shuffle import Shuffle
from headrace.ops.text.pack import PackRows
from headrace.pipe.access import random_access
from headrace.pipe.cursor import Opening
from headrace.pipe.graph import Pipe
from headrace.plan.mixture import Mixture
from headrace.plan.world import World

if TYPE_CHECKING:
    from headrace.plan.token_mixture import TokenMixture


def reweighted(
    pipe: Pipe[Any], program: Program, world: World, epoch: int, at: EpochPlace | None, weights: Sequence[float],
    step: int | None, sample: int | None,
) -> tuple[Pipe[Any], int]:  # fmt: skip
    """The pipe with other weights from this step, or sample of the mixture, of an epoch on; and the sample from which
    they hold: the next end of a block."""
    node, op = _mixture(pipe)
    if len(weights) != len(node.inputs):
        raise BadOption(f"the mixture has {len(node.inputs)} inputs, and got {len(weights)} weights")
    if (step is None) == (sample is None):
        raise BadOption(
            "say from when on the weights hold: reweight(weights, at_step=) or reweight(weights, at_sample=)"
        )
    wanted = _sample(program, world, epoch, step) if step is not None else sample
    if not isinstance(wanted, int) or wanted < 1:
        raise BadOption(f"weights change at a step or sample after the first, not at {wanted!r}")
    order = _order(pipe, node, op, program.seed, epoch)
    last = max([change.start for change in op.journal if change.epoch == epoch], default=0)
    start = order.next_border(max(wanted, last + 1))
    if start >= order.length:
        raise BadOption(f"the mixture ends at sample {order.length}, before other weights could begin at {wanted}")
    behind = _reached(program, epoch, at)
    if behind > start:
        raise BadOption(
            f"{behind} samples of the mixture are delivered already, or in windows that are: weights cannot change at "
            f"sample {start}; choose a later {'step' if step is not None else 'sample'}, and call reweight() on every "
            "rank before that"
        )
    new = replace(op, journal=(*op.journal, Change(epoch, start, op.weigh(weights))))
    if _order(pipe, node, new, program.seed, epoch).before(start) != order.before(start):
        raise BadOption(
            f"a stage that was planned for later than sample {start} has begun before its time, because the sources of "
            "the one before have ended: weights cannot change in it; call reweight() before the next epoch begins"
        )
    return pipe.replaced(node, new), start


def _order(pipe: Pipe[Any], node: Pipe[Any], op: "Mix[Any]", seed: int, epoch: int) -> "Mixture | TokenMixture":
    """The order of the mixture in this epoch, which knows where its blocks end.

    Where a source ends a block ends too, so real lengths are needed: how many rows packed documents make follows from
    the order of the epoch. Lengths of streams are not known, but there weights cannot change once an epoch has begun.
    """
    opening = Opening(pipe.ordinals(), seed, epoch)
    opened = [random_access(source, opening, 0) for source in node.inputs]
    known = [one for one in opened if one is not None]
    if len(known) < len(opened):
        return Mixture((1,) * len(opened), stages_in(epoch, op.stages, op.journal), 0, "forever")
    made = op.order(known, opening.here(node, 0))
    if made is None:
        raise BadOption("the mixture is empty: there are no samples that other weights could be for")
    return made


def _sample(program: Program, world: World, epoch: int, step: int) -> int:
    """The first sample of the mixture that comes in no batch before this step, where arithmetic can tell."""
    stage, before = program.stages[0], _before(program, epoch)
    if before is None or before.windows or stage.group is None or len(program.stages) > 1:
        raise BadOption(
            "between the mixture and the batches of this pipe stands an op that changes counts (filter, or pack where "
            "lengths are not known), so a step is no sample of the mixture: say at_sample= instead, the number of a "
            f"sample of the mixture; or {ROWS_FIRST}"
        )
    return before(step * stage.group * world.share_ranks)


ROWS_FIRST = "pack() each source and mix() the rows: then at_step= works, and the length is known"


def _reached(program: Program, epoch: int, at: EpochPlace | None) -> int:
    """How many samples of the mixture were delivered, or are in tickets that were begun, at a place."""
    if at is None or (isinstance(at, RunPlace) and at.place is None and not at.gone and not at.ops):
        return 0  # nothing is delivered yet
    place = at.place if isinstance(at, RunPlace) else None
    begun = isinstance(at, RunPlace) and at.gone > 0
    while isinstance(place, Regrouped):
        begun, place = begun or place.offset > 0, place.source
    before = _before(program, epoch)
    if not isinstance(place, Position) or before is None:
        raise BadOption(
            "how far the ranks have come in the mixture cannot be told here: plan the change with mix(stages=), call "
            f"reweight() before an epoch begins, or {ROWS_FIRST}"
        )
    in_work = place.size * place.ranks if begun else 0
    if before.windows:
        return before(place.position) + (max(before(1), in_work) if begun else 0)
    return before(place.position + (max(1, in_work) if begun else 0))


@dataclass
class _Before:
    """How many samples of the mixture the first positions of the head can hold, at the most."""

    counts: list[Callable[[int], int]] = field(default_factory=list)
    """Of each op from the head down to the mixture: how many of its inputs make so many of its outputs."""
    windows: bool = False
    """A position is a window of samples, and how many rows these make is not known."""

    def __call__(self, position: int) -> int:
        return reduce(lambda position, count: count(position), self.counts, position)


def _before(program: Program, epoch: int) -> _Before | None:
    """The count of this epoch; None where arithmetic cannot tell."""
    node, _ = _mixture(program.pipe)
    opening = Opening(program.pipe.ordinals(), program.seed, epoch)
    between, found = program.head, _Before()
    while between is not node:
        op, window = between.op, getattr(between.op, "window", None)
        if len(between.inputs) != 1 or isinstance(op, Shuffle):
            return None
        if isinstance(op, PackRows):
            inner = random_access(between.inputs[0], opening, 0)
            if inner is None:
                return None
            found.counts.append(partial(op.documents_before, inner, opening.here(between, 0)))
        elif not isinstance(op, Each | Flat):
            if not isinstance(window, int):
                return None
            found.counts.append(window.__mul__)
            found.windows = True
        between = between.inputs[0]
    return found if program.indexed else None


def _mixture(pipe: Pipe[Any]) -> "tuple[Pipe[Any], Mix[Any]]":
    found = [(node, node.op) for node in pipe.nodes() if isinstance(node.op, Mix)]
    if len(found) != 1:
        raise BadOption(f"reweight() is for a pipe with one mix(), and this one has {len(found)}")
    return found[0]
