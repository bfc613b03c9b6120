"""Which launcher started this process, and the World that it describes.

    explain()   HEADRACE_RANK ... set by hand  >  a library that is already initialised  >  the variables of LAUNCHERS
                (innermost launcher first)  >  a single process
    detect()    the World of explain(), its warnings as Python warnings
    warn_if_ranks()   a loader was made without a world: say so, once in a process, where a launcher has several ranks

Rules, each with a test:
* All fields come from one launcher. A claim that gives rank and ranks but not the local fields takes them from a later
  claim that agrees on both numbers; otherwise one process a machine is assumed, with a warning.
* Variables that do not make a whole claim are a warning that names what is missing; then the next launcher is asked.
  A whole claim with impossible numbers is an error: falling back to one process would repeat the data on every rank.
* A launcher that nobody here can test is an error that says what to set, unless a claim before it is believed.
* An sbatch script has SLURM_PROCID=0 and SLURM_NTASKS=4 but is one process: only a step (srun) has SLURM_STEP_ID.
* Nothing is remembered: after an elastic restart the answer may be another one.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from headrace.errors import BadOption
from headrace.plan.world import World
from headrace.ranks import env
from headrace.ranks.claims import Claim, IncompleteClaim, RefusedClaim, claim_readers
from headrace.tracebacks import users_line


@dataclass(frozen=True, slots=True)
class Detection:
    """The decision and its reasons; `disagree` holds the launchers that were not believed and say something else."""

    world: World
    launcher: str
    variables: Mapping[str, str]
    disagree: tuple[Claim, ...] = ()
    warnings: tuple[str, ...] = ()


def detect(environ: Mapping[str, str] | None = None, modules: Mapping[str, ModuleType] | None = None) -> World:
    """The World of this process; what is doubtful about it is warned about."""
    found = explain(environ, modules)
    for text in found.warnings:
        warnings.warn(text, RuntimeWarning, stacklevel=users_line())
    return found.world


_warned = False


def warn_if_ranks() -> None:
    """Warn once in a process when a launcher has started several ranks, and each is about to read everything."""
    global _warned
    if _warned:
        return
    try:
        found = explain()
    except RefusedClaim as refused:
        what = str(refused)
    except BadOption:
        return  # what the launcher says cannot be true, but this loader does not use it
    else:
        if found.world.ranks == 1:
            return
        what = f"{found.launcher} has started {found.world.ranks} ranks"
    _warned = True
    warnings.warn(
        f"{what}; this Loader has no world=, so every rank reads everything: write world=World.detect() to share it, "
        "or world=World() if this is meant",
        stacklevel=users_line(),
    )


def explain(environ: Mapping[str, str] | None = None, modules: Mapping[str, ModuleType] | None = None) -> Detection:
    """The World of this process with the reasons for it."""
    environ = env.current() if environ is None else environ
    doubts: list[str] = []
    claims = list(_claims(environ, sys.modules if modules is None else modules, doubts))
    if not claims:
        return Detection(World(), "none", {}, warnings=tuple(doubts))
    best = claims[0]
    if not best.knows_local:
        best = next((best.with_local_of(c) for c in claims[1:] if c.knows_local and c.agrees(best)), best)
    world = _world(best, doubts)
    disagree = tuple(claim for claim in claims[1:] if not claim.agrees(best))
    return Detection(world, best.launcher, best.variables, disagree, tuple(doubts))


def _claims(environ: Mapping[str, str], modules: Mapping[str, ModuleType], doubts: list[str]) -> Iterator[Claim]:
    believed = False
    for read_claim in claim_readers(environ, modules):
        try:
            claim = read_claim()
            if claim is not None:
                _world(claim, [])  # impossible numbers show here
                believed = True
                yield claim
        except IncompleteClaim as incomplete:
            if not believed:  # an sbatch script that starts torchrun or mpirun is as it should be
                doubts.append(str(incomplete))
        except BadOption as wrong:
            if not believed:
                raise
            if not isinstance(wrong, RefusedClaim):  # torchrun on nodes of such a launcher is as it should be
                doubts.append(f"{wrong} (not used)")


def _world(claim: Claim, doubts: list[str]) -> World:
    """The claim as a checked World, with what it leaves open filled in."""
    rank, ranks, local_rank, local_ranks = claim.rank, claim.ranks, claim.local_rank, claim.local_ranks
    node, nodes = claim.node, claim.nodes
    if local_rank is None or local_ranks is None:
        local_rank, local_ranks, node, nodes = 0, 1, rank, ranks
        if ranks > 1:
            doubts.append(
                f"{claim.launcher}: nothing says which ranks share this machine, so one rank a machine is assumed; set "
                f"{env.OWN_LOCAL_RANK} and {env.OWN_LOCAL_RANKS} (with {env.OWN_RANK} and {env.OWN_RANKS}), or give a "
                "World by hand"
            )
    elif node is None:
        # only true for equal nodes filled in turn, so both are checked where they can be
        if local_ranks > 0 and ranks % local_ranks == 0 and rank % local_ranks == local_rank:
            node, nodes = rank // local_ranks, ranks // local_ranks
        else:
            node, nodes = 0, 1
            doubts.append(
                f"{claim.launcher}: ranks are not spread evenly in blocks, so the number of this machine is unknown "
                "and written as 0 of 1; give a World by hand where it matters"
            )
    elif nodes is None:
        nodes = max(node + 1, -(-ranks // max(local_ranks, 1)))
    try:
        return World(rank, ranks, local_rank, local_ranks, node, nodes, source=claim.launcher)
    except BadOption as wrong:
        said = ", ".join(f"{name}={value}" for name, value in claim.variables.items())
        raise BadOption(f"{claim.launcher} says what cannot be: {wrong} [{said}]") from None
