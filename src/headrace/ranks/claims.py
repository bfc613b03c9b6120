"""What each launcher and each library says about the ranks of this process, as a Claim.

A reader returns None where its launcher has not started this process, and raises `IncompleteClaim` where variables of
that launcher are set but do not say which rank this is. `detect` decides which claim is believed.
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


def claim_readers(
    environ: Mapping[str, str], modules: Mapping[str, ModuleType]
) -> Iterator[Callable[[], Claim | None]]:
    """A reader for each launcher and library, the most trusted first."""
    yield partial(_variables, env.OWN, environ)
    for library in (_ray, _torch, _jax, _mpi):
        yield partial(library, modules)
    if environ.get(env.OWN_RUN) == f"{environ.get(env.RANK)}/{environ.get(env.RANKS)}":
        # Otherwise another launcher was started inside ours, and torch's variables are that one's.
        yield partial(_variables, env.RUN, environ)
    for launcher in env.LAUNCHERS:
        yield partial(_variables, launcher, environ)


def _variables(launcher: env.Launcher, environ: Mapping[str, str]) -> Claim | None:
    if not launcher.left_traces(environ):
        return None
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
    if launcher.one_per_machine:
        fields |= {"local_rank": 0, "local_ranks": 1, "node": fields["rank"], "nodes": fields["ranks"]}
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
    if launcher.name == "kubernetes" and env.OWN_RANKS in missing:
        return f"{text}; set {env.OWN_RANKS} to the number of pods in the job's template"
    return text


_Fields = dict[str, int | None]


def _is_loopback(address: str) -> bool:
    """Whether ranks that meet at this address are all on one machine."""
    return address.rpartition(":")[0].strip("[]") in ("localhost", "127.0.0.1", "::1")


def _jax_variables(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    here = _is_loopback(environ[env.JAX_COORDINATOR])
    return {"local_rank": fields["rank"], "local_ranks": fields["ranks"]} if here else {}


def _poprun(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    if fields["rank"] is not None and fields["ranks"] is not None:
        return {}
    total = env.integer(environ, env.POPDIST_TOTAL_REPLICAS)
    local = env.integer(environ, env.POPDIST_LOCAL_REPLICAS)
    offset = env.integer(environ, env.POPDIST_REPLICA_OFFSET)
    if not total or not local or offset is None or environ.get(env.POPDIST_UNIFORM, "1") != "1":
        return {}
    used |= {name: environ[name] for name in (env.POPDIST_LOCAL_REPLICAS, env.POPDIST_REPLICA_OFFSET)}
    return {"rank": offset // local, "ranks": total // local}


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


def _flux(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    nodes, ranks = env.integer(environ, env.FLUX_NODES), fields["ranks"]
    if not nodes or not ranks or ranks % nodes:
        return {}
    used[env.FLUX_NODES] = environ[env.FLUX_NODES]
    return {"local_ranks": ranks // nodes, "nodes": nodes}


def _kubeflow(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    # These are torchrun's inputs. They are ranks only where one process a pod is started.
    if environ.get(env.PET_LOCAL_RANKS, "1") != "1" or not environ[env.PET_NODES].isdigit():
        raise IncompleteClaim(
            f"kubeflow: {env.PET_NODES}={environ[env.PET_NODES]}, {env.PET_LOCAL_RANKS}="
            f"{environ.get(env.PET_LOCAL_RANKS)} are options for torchrun, not ranks; start the program with torchrun"
        )
    return {"rank": env.integer(environ, env.PET_NODE), "ranks": env.integer(environ, env.PET_NODES)}


def _tf_config(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    import json

    try:
        config = json.loads(environ[env.TF_CONFIG])
        cluster, task = config["cluster"], config["task"]
        order = [kind for kind in ("chief", "master", "worker") if kind in cluster]
        before = sum(len(cluster[kind]) for kind in order[: order.index(task["type"])])
        return {"rank": before + int(task["index"]), "ranks": sum(len(cluster[kind]) for kind in order)}
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise IncompleteClaim(f"tf_config: {env.TF_CONFIG} names no worker of a cluster ({wrong!r})") from None


def _tpu(fields: _Fields, environ: Mapping[str, str], used: dict[str, str]) -> _Fields:
    return {"ranks": len([host for host in environ[env.TPU_HOSTS].split(",") if host.strip()])}


_SPECIAL = {
    "jax variables": _jax_variables,
    "poprun": _poprun,
    "torchrun": _torchrun,
    "slurm": _slurm,
    "flux": _flux,
    "kubeflow": _kubeflow,
    "tf_config": _tf_config,
    "tpu": _tpu,
}


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
