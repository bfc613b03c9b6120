"""What each launcher and each library says about the ranks of this process, as a Claim.

A reader returns None where its launcher has not started this process, and raises `IncompleteClaim` where variables of
that launcher are set but do not say which rank this is, `RefusedClaim` where nobody here can test what they say.
`detect` decides which claim is believed.
Libraries are looked up among the modules that are already loaded, never imported. An MPI world of one process is no
claim: mpi4py says that under every other launcher.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

from headrace.errors import BadOption
from headrace.ranks import env
from headrace.ranks.agree import initialized


@dataclass(frozen=True, slots=True)
class Claim:
    """What one launcher says (None where it says nothing), and the variables that this was read from."""

    launcher: str
    rank: int
    ranks: int
    local_rank: int | None = None
    local_ranks: int | None = None
    node: int | None = None
    nodes: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def knows_local(self) -> bool:
        return self.local_rank is not None and self.local_ranks is not None

    def agrees(self, other: "Claim") -> bool:
        return (self.rank, self.ranks) == (other.rank, other.ranks)

    def with_local_of(self, other: "Claim") -> "Claim":
        """This claim with the local fields of another that agrees with it."""
        return replace(other, launcher=self.launcher, variables={**self.variables, **other.variables})


class IncompleteClaim(Exception):
    """Variables of a launcher are set, but not all that a claim needs."""


class RefusedClaim(BadOption):
    """A launcher that is only recognised: to guess would let each rank train on everything."""


def claim_readers(
    environ: Mapping[str, str], modules: Mapping[str, ModuleType]
) -> Iterator[Callable[[], Claim | None]]:
    """A reader for each launcher and library, the most trusted first."""
    yield partial(_variables, env.OWN, environ)
    for library in (_ray, _torch, _jax, _mpi):
        yield partial(library, modules)
    if env.started_by_run(environ):
        yield partial(_variables, env.RUN, environ)
    for launcher in env.LAUNCHERS:
        yield partial(_variables, launcher, environ)


def _variables(launcher: env.Launcher, environ: Mapping[str, str]) -> Claim | None:
    if not launcher.left_traces(environ):
        return None
    if not launcher.rank:
        raise RefusedClaim(
            f"{launcher.marks[0]} is set, so {launcher.name} has started this process, whose variables are not read: "
            f"set {env.OWN_RANK} and {env.OWN_RANKS} in each process (0 and 1 for a single one), or initialize "
            "torch.distributed, JAX or mpi4py before this"
        )
    missing = [name for name in launcher.marks if not environ.get(name)]
    if missing:
        raise IncompleteClaim(_incomplete_text(launcher, environ, missing))
    used: dict[str, str] = {name: environ[name] for name in launcher.marks}

    def first(names: tuple[str, ...]) -> int | None:
        for name in names:
            value = env.integer(environ, name)
            if value is not None:
                used[name] = environ[name]
                return value
        return None

    fields = {
        name: first(getattr(launcher, name)) for name in ("rank", "ranks", "local_rank", "local_ranks", "node", "nodes")
    }
    special = _SPECIAL.get(launcher.name)
    if special:
        fields |= special(fields, environ, used)
    rank, ranks = fields.pop("rank"), fields.pop("ranks")
    if rank is None or ranks is None:
        lacking = [names for names, value in ((launcher.rank, rank), (launcher.ranks, ranks)) if value is None]
        raise IncompleteClaim(_incomplete_text(launcher, environ, [" or ".join(names) for names in lacking]))
    return Claim(launcher.name, rank, ranks, **fields, variables=used)


def _incomplete_text(launcher: env.Launcher, environ: Mapping[str, str], missing: list[str]) -> str:
    there = ", ".join(f"{name}={environ[name]}" for name in launcher.names() if environ.get(name))
    text = f"{launcher.name}: {there} is set but {', '.join(missing)} is not, so it is not believed"
    if launcher.name == "slurm":
        return f"{text}: this process is a batch script or a shell, not a step; start ranks with srun"
    return text


_Fields = dict[str, int | None]


def _is_loopback(address: str) -> bool:
    """Whether ranks that meet at this address are all on one machine."""
    return address.rpartition(":")[0].strip("[]") in ("localhost", "127.0.0.1", "::1")


def _jax_variables(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    here = _is_loopback(environ[env.JAX_COORDINATOR])
    return {"local_rank": fields["rank"], "local_ranks": fields["ranks"]} if here else {}


def _torchrun(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    # --virtual-local-rank says LOCAL_RANK=0 everywhere; the true one follows where all nodes have equally many.
    rank, ranks, local_ranks = fields["rank"], fields["ranks"], fields["local_ranks"]
    node, nodes = fields["node"], fields["nodes"]
    if rank is None or not local_ranks or node is None or nodes is None or ranks != nodes * local_ranks:
        return {}
    inside = rank - node * local_ranks
    return {"local_rank": inside} if fields["local_rank"] == 0 and 0 < inside < local_ranks else {}


def _slurm(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    if environ.get(env.SLURM_PTY) and fields["ranks"] != 1:
        raise IncompleteClaim(
            f"slurm: {env.SLURM_PTY} is set, so this is an interactive shell and not a rank of the step; "
            "start ranks with srun from it"
        )
    name = next((name for name in env.SLURM_TASKS_PER_NODE if environ.get(name)), None)
    node = fields["node"]
    if name is None or node is None:
        return {}
    used[name] = environ[name]
    per_node = _tasks_per_node(name, environ[name])
    if node >= len(per_node):
        raise BadOption(f"{env.SLURM_NODEID}={node} but {name}={environ[name]} names {len(per_node)} nodes")
    return {"local_ranks": per_node[node], "nodes": len(per_node)}


def _tasks_per_node(name: str, text: str) -> list[int]:
    """SLURM's `4(x2),3` is [4, 4, 3]."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", part)
        if not match:
            raise BadOption(f"{name}={text!r} is not of the form 4(x2),3")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


_SPECIAL = {"jax variables": _jax_variables, "torchrun": _torchrun, "slurm": _slurm}


def _ray(modules: Mapping[str, Any]) -> Claim | None:
    train = modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, ranks = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # how Ray says that this process is no train worker
        return None
    if rank is None or ranks is None:
        return None
    local_rank, local_ranks, node = context.get_local_rank(), context.get_local_world_size(), context.get_node_rank()
    return Claim("ray train", rank, ranks, local_rank, local_ranks, node)


def _torch(modules: Mapping[str, Any]) -> Claim | None:
    dist = initialized(modules)
    return None if dist is None else Claim("torch.distributed", dist.get_rank(), dist.get_world_size())


def _jax(modules: Mapping[str, Any]) -> Claim | None:
    jax = modules.get("jax")
    if jax is None or not getattr(jax.distributed, "is_initialized", lambda: False)():
        return None  # asking jax for its processes before that would start its backends
    claim = Claim("jax", jax.process_index(), jax.process_count())
    state = getattr(modules.get("jax._src.distributed"), "global_state", None)
    if _is_loopback(getattr(state, "coordinator_address", None) or ""):
        claim = replace(claim, local_rank=claim.rank, local_ranks=claim.ranks)
    return claim


def _mpi(modules: Mapping[str, Any]) -> Claim | None:
    mpi = modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() == 1:
        return None
    return Claim("mpi4py", mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size())
