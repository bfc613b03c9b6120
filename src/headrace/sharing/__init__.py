"""Sharing: how the ranks of a job share an epoch, and where the whole job stands in it.

    arithmetic   each rank works out its part and its number of steps; ranks need not communicate
    counted      ops decide how many outputs a position has: ranks tell each other, and the rest is arithmetic again
    in_step      where no rank can make another's outputs: each delivers its own, as long as all have a batch
    dynamic      sharding="dynamic": ranks take the next block from a shared counter, each as many as it can

A loader asks its sharing to begin an epoch at a place (None: at its start), and gets a `Start` for its engine. A place
says where the job stands; it is the same on every rank, and loads in another world.
"""

import logging
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.tuning import caution as of_policy
from headrace.errors import BadOption, meant, warn_once
from headrace.ops.shape.same import FullSync
from headrace.pipe.graph import Pipe
from headrace.plan.share import EndPolicy
from headrace.plan.world import World
from headrace.ranks.agree import TIMEOUT
from headrace.sharing.arithmetic import Sharing

log = logging.getLogger("headrace")


def make(
    program: Program, pipe: Pipe[Any], policy: Policy, world: World, ends: str, sharding: str, timeout: float | None
) -> Sharing:
    """The sharing of a loader; `timeout` is that of a `fullsync()` at the end of the pipe, None if there is none."""
    if ends not in (known := get_args(EndPolicy)):
        raise BadOption(f"ends must be one of {', '.join(map(repr, known))}, not {ends!r}{meant(str(ends), known)}")
    seconds = TIMEOUT if timeout is None else timeout
    if world.rank == 0:
        if caution := of_policy(policy):
            warn_once(caution)
        for node in pipe.nodes():
            if caution := node.op.caution(partial(_lengths, node)):
                log.warning(caution)
    if sharding not in ("static", "dynamic"):
        raise BadOption(f"sharding must be 'static' or 'dynamic', not {sharding!r}")
    if sharding == "dynamic":
        from headrace.sharing.counting import with_pass_through

        if not (program.stages[0].single or program.tail or not program.indexed):
            program = with_pass_through(program)
        _check_dynamic(program, policy, world, ends, timeout)
        from headrace.sharing.dynamic import DynamicSharing

        return DynamicSharing(program, pipe, world, ends, seconds)
    if world.share_ranks == 1 or program.steps_known:
        return Sharing(program, pipe, world, ends, seconds)
    if program.countable:
        from headrace.sharing.counted import CountedSharing
        from headrace.sharing.counting import with_pass_through

        return CountedSharing(with_pass_through(program), pipe, world, ends, seconds)
    from headrace.sharing.in_step import InStepSharing

    return InStepSharing(program, pipe, world, ends, seconds)


def _lengths(node: Pipe[Any]) -> tuple[int | None, ...]:
    return tuple(inner.length() for inner in node.inputs)


def _check_dynamic(program: Program, policy: Policy, world: World, ends: str, timeout: float | None) -> None:
    equal = "with sharding='dynamic' a fast rank makes more steps than a slow one, so"
    if timeout is not None or any(isinstance(node.op, FullSync) for node in program.pipe.nodes()):
        raise BadOption(f"{equal} fullsync, which makes steps equal, cannot be combined with it; leave one of them out")
    if ends != "short":
        raise BadOption(f"{equal} there is no last step to fill or to drop: leave ends= at 'short', not {ends!r}")
    if world.replicas > 1:
        raise BadOption(
            f"{equal} the {world.replicas} ranks of one copy of the model would not take the same samples; "
            "leave sharding at 'static'"
        )
    if any(stage.balance is not None for stage in program.stages):
        raise BadOption(f"{equal} balance(), which deals every step to all ranks, cannot be combined with it")
    if not policy.ordered and len(program.stages) > 1:
        raise BadOption(
            "sharding='dynamic' with ordered=False needs batches that are made of one block each, and this pipe "
            "regroups samples: leave ordered=True"
        )


def on_ranks(policy: Policy, world: World, sharding: str) -> Policy:
    """The policy of the user, changed where this way of sharing needs it."""
    if sharding == "dynamic":
        # A slow rank must not hold many blocks that other ranks could run.
        return policy if policy.window else replace(policy, window=policy.workers + 1, stretch=False)
    # Other ranks would not know which batches one rank has received before their turn: no snapshot would hold for all.
    return policy if world.share_ranks == 1 else replace(policy, ordered=True)


def without_sync(pipe: Pipe[Any]) -> tuple[Pipe[Any], float | None]:
    """The pipe without a `fullsync()` at its end, and the time-out of that: every loader keeps ranks in step anyway."""
    timeout: float | None = None
    while isinstance(pipe.op, FullSync):
        timeout = pipe.op.timeout if timeout is None else min(timeout, pipe.op.timeout)
        pipe = pipe.inputs[0]
    return pipe, timeout
