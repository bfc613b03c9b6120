"""Every environment variable that headrace reads or sets, each name written once, here.

The only module below `cli` that looks at `os.environ`, and only when a function is called, never at import: a restarted
rank reads again. Everything else takes the mapping as an argument, so that tests and tools pass their own.
An empty value counts as not set.

    LAUNCHERS    innermost launcher first: which variables say that it started this process, and which give each field
    replicas()   what the launcher says about copies of the model: how many in the job, how many here, from which on
    job()        a text that is the same on all ranks of one attempt of one job, and different for another
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import BadOption

# What a user sets by hand to overrule every launcher; `headrace run` never sets these.
OWN_RANK = "HEADRACE_RANK"
OWN_RANKS = "HEADRACE_WORLD_SIZE"
OWN_LOCAL_RANK = "HEADRACE_LOCAL_RANK"
OWN_LOCAL_RANKS = "HEADRACE_LOCAL_WORLD_SIZE"
OWN_NODE = "HEADRACE_NODE_RANK"
OWN_NODES = "HEADRACE_NODES"

# What `headrace run` says: "rank/ranks" of the process that it started.
OWN_RUN = "HEADRACE_RUN"

# What it says about replicas, and PopRun's names for the same.
TOTAL_REPLICAS = "HEADRACE_NUM_TOTAL_REPLICAS"
LOCAL_REPLICAS = "HEADRACE_NUM_LOCAL_REPLICAS"
REPLICA_OFFSET = "HEADRACE_REPLICA_INDEX_OFFSET"
POPDIST_TOTAL_REPLICAS = "POPDIST_NUM_TOTAL_REPLICAS"
POPDIST_LOCAL_REPLICAS = "POPDIST_NUM_LOCAL_REPLICAS"
POPDIST_REPLICA_OFFSET = "POPDIST_REPLICA_INDEX_OFFSET"
POPDIST_UNIFORM = "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE"

# torch's names, set by torchrun, by `headrace run` and by most trainers.
RANK = "RANK"
RANKS = "WORLD_SIZE"
LOCAL_RANK = "LOCAL_RANK"
LOCAL_RANKS = "LOCAL_WORLD_SIZE"
GROUP_RANK = "GROUP_RANK"
GROUP_RANKS = "GROUP_WORLD_SIZE"
MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"
JAX_COORDINATOR = "JAX_COORDINATOR_ADDRESS"
RUN_ID = "TORCHELASTIC_RUN_ID"
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # "1": ranks make a store of their own, instead of using the agent's
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

SLURM_PROCID = "SLURM_PROCID"
SLURM_STEP_ID = "SLURM_STEP_ID"
SLURM_NODEID = "SLURM_NODEID"
SLURM_TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
SLURM_PTY = "SLURM_PTY_PORT"  # only the one task of `srun --pty` has it

OMPI_RANK = "OMPI_COMM_WORLD_RANK"
OMPI_RANKS = "OMPI_COMM_WORLD_SIZE"
OMPI_LOCAL_RANKS = "OMPI_COMM_WORLD_LOCAL_SIZE"

PALS_RANK = "PALS_RANKID"
PMI_RANKS = "PMI_SIZE"
FLUX_NODES = "FLUX_JOB_NNODES"
PET_NODES = "PET_NNODES"
PET_NODE = "PET_NODE_RANK"
PET_LOCAL_RANKS = "PET_NPROC_PER_NODE"
TF_CONFIG = "TF_CONFIG"
TPU_HOSTS = "TPU_WORKER_HOSTNAMES"
TPU_ID = "TPU_WORKER_ID"
KUBERNETES_INDEX = "JOB_COMPLETION_INDEX"
KUBERNETES_HOST = "KUBERNETES_SERVICE_HOST"
CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"

# What `headrace run` sets besides the ranks.
OMP_THREADS = "OMP_NUM_THREADS"
UNBUFFERED = "PYTHONUNBUFFERED"
DEVICES = (CUDA_DEVICES, "HIP_VISIBLE_DEVICES")
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
FORWARDED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")  # to other machines, as PopRun does


@dataclass(frozen=True, slots=True)
class Launcher:
    """Where one launcher writes each field; of several names the first that is set counts."""

    name: str
    marks: tuple[str, ...] = ()  # the first one set: this launcher speaks; all of them must be set for it to be whole
    rank: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    alone: bool = False  # starts one process a machine (or pod), so local fields need no variable

    def speaks(self, environ: Mapping[str, str]) -> bool:
        """Whether it has left traces; without a mark, a rank or a number of ranks is one."""
        return any(environ.get(name) for name in self.marks[:1] or self.rank + self.ranks)

    def names(self) -> tuple[str, ...]:
        """What makes a claim, without repetition."""
        return tuple(dict.fromkeys(self.marks + self.rank + self.ranks))


OWN = Launcher(
    "headrace variables",
    marks=(OWN_RANK,),
    rank=(OWN_RANK,),
    ranks=(OWN_RANKS,),
    local_rank=(OWN_LOCAL_RANK,),
    local_ranks=(OWN_LOCAL_RANKS,),
    node=(OWN_NODE,),
    nodes=(OWN_NODES,),
)

# What `headrace run` sets are torch's variables; the mark says that they are still its own.
RUN = Launcher(
    "headrace run",
    marks=(OWN_RUN,),
    rank=(RANK,),
    ranks=(RANKS,),
    local_rank=(LOCAL_RANK,),
    local_ranks=(LOCAL_RANKS,),
    node=(GROUP_RANK,),
    nodes=(GROUP_RANKS,),
)

# The order is the order of trust: a launcher started by another one stands before it. `srun torchrun` leaves both sets
# in the environment, and only torchrun's is about this process.
LAUNCHERS = (
    Launcher(
        "poprun",
        marks=(POPDIST_TOTAL_REPLICAS,),
        rank=(OMPI_RANK,),
        ranks=(OMPI_RANKS,),
        local_rank=("POPDIST_LOCAL_INSTANCE_INDEX",),
        local_ranks=(OMPI_LOCAL_RANKS,),
    ),
    Launcher(
        "torchrun",
        marks=(RUN_ID,),
        rank=(RANK,),
        ranks=(RANKS,),
        local_rank=(LOCAL_RANK,),
        local_ranks=(LOCAL_RANKS,),
        node=(GROUP_RANK,),
        nodes=(GROUP_RANKS,),
    ),
    Launcher(
        "torch variables",
        rank=(RANK,),
        ranks=(RANKS,),
        local_rank=(LOCAL_RANK,),
        local_ranks=(LOCAL_RANKS,),
        node=("NODE_RANK", GROUP_RANK),
        nodes=(GROUP_RANKS,),
    ),
    Launcher(
        "horovod",
        rank=("HOROVOD_RANK",),
        ranks=("HOROVOD_SIZE",),
        local_rank=("HOROVOD_LOCAL_RANK",),
        local_ranks=("HOROVOD_LOCAL_SIZE",),
        node=("HOROVOD_CROSS_RANK",),
        nodes=("HOROVOD_CROSS_SIZE",),
    ),
    Launcher(
        "jax variables",
        marks=(JAX_COORDINATOR,),
        rank=("JAX_PROCESS_ID", "JAX_PROCESS_INDEX"),
        ranks=("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT"),
    ),
    Launcher("tf_config", marks=(TF_CONFIG,), alone=True),
    Launcher(
        "openmpi",
        rank=(OMPI_RANK,),
        ranks=(OMPI_RANKS,),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_ranks=(OMPI_LOCAL_RANKS,),
        # not OMPI_COMM_WORLD_NODE_RANK: that is this process's number on its node, not the node's number
    ),
    Launcher(
        "mvapich2",
        rank=("MV2_COMM_WORLD_RANK",),
        ranks=("MV2_COMM_WORLD_SIZE",),
        local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
        local_ranks=("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    Launcher(
        "pals",
        marks=(PALS_RANK,),
        rank=(PALS_RANK,),
        ranks=("PALS_SIZE", PMI_RANKS),
        local_rank=("PALS_LOCAL_RANKID",),
        local_ranks=("PALS_LOCAL_SIZE",),
        node=("PALS_NODEID",),
    ),
    Launcher(
        "flux",
        rank=("FLUX_TASK_RANK",),
        ranks=("FLUX_JOB_SIZE",),
        local_rank=("FLUX_TASK_LOCAL_ID",),
    ),
    Launcher(
        "jsrun",
        rank=("JSM_NAMESPACE_RANK",),
        ranks=("JSM_NAMESPACE_SIZE",),
        local_rank=("JSM_NAMESPACE_LOCAL_RANK",),
        local_ranks=("JSM_NAMESPACE_LOCAL_SIZE",),
    ),
    Launcher(
        "mpich",
        rank=("PMI_RANK",),
        ranks=(PMI_RANKS,),
        local_rank=("MPI_LOCALRANKID",),
        local_ranks=("MPI_LOCALNRANKS",),
    ),
    Launcher(
        "slurm",
        marks=(SLURM_PROCID, SLURM_STEP_ID),
        rank=(SLURM_PROCID,),
        # the step, not the allocation: a step may be smaller
        ranks=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        local_rank=("SLURM_LOCALID",),
        node=(SLURM_NODEID,),
        nodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
    ),
    Launcher("kubeflow", marks=(PET_NODES, PET_NODE), alone=True),
    Launcher("tpu", marks=(TPU_HOSTS,), rank=(TPU_ID,), alone=True),
    Launcher(
        "kubernetes",
        marks=(KUBERNETES_INDEX, KUBERNETES_HOST),
        rank=(KUBERNETES_INDEX,),
        ranks=(OWN_RANKS,),  # the number of pods is not in a pod's environment
        alone=True,
    ),
)

# What tells two jobs apart. All that is set is joined: each alone may be a default that every job has.
_JOB = (
    RUN_ID,
    RESTARTS,
    MASTER_ADDR,
    MASTER_PORT,
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    SLURM_STEP_ID,
    "SLURM_RESTART_COUNT",
    "FLUX_JOB_ID",
    "PALS_APID",
    "LSB_JOBID",
    "PBS_JOBID",
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of the model: `total` in the job, `local` driven by this process, numbered from `offset` on."""

    total: int
    local: int
    offset: int

    def __post_init__(self) -> None:
        if self.local < 1 or self.offset < 0 or self.offset + self.local > self.total:
            raise BadOption(
                f"{self} does not fit: offset..offset+local-1 must lie in 0..total-1; check what the launcher set"
            )


def current() -> Mapping[str, str]:
    """The environment of this process, as it is now."""
    return os.environ


@contextmanager
def with_variable(name: str, value: str) -> Iterator[None]:
    """The variable has this value inside, unless the user has given it one."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def integer(environ: Mapping[str, str], name: str) -> int | None:
    """The variable as an int, None when it is not set."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{name}={text!r} is not an integer; unset it or start the program with its launcher") from None


def replicas(environ: Mapping[str, str] | None = None) -> Replicas | None:
    """What the launcher says about replicas: `headrace run` first, then PopRun; None when neither started us."""
    environ = current() if environ is None else environ
    for total_name, local_name, offset_name in (
        (TOTAL_REPLICAS, LOCAL_REPLICAS, REPLICA_OFFSET),
        (POPDIST_TOTAL_REPLICAS, POPDIST_LOCAL_REPLICAS, POPDIST_REPLICA_OFFSET),
    ):
        total = integer(environ, total_name)
        if total is None:
            continue
        local, offset = integer(environ, local_name), integer(environ, offset_name)
        if offset is None and total != 1:
            raise BadOption(f"{total_name}={total} is set but {offset_name} is not; unset it or set both")
        return Replicas(total, 1 if local is None else local, offset or 0)
    return None


def job(environ: Mapping[str, str] | None = None) -> str:
    """The same text on all ranks of one attempt of one job, another for other jobs as far as launchers tell."""
    environ = current() if environ is None else environ
    return " ".join(f"{name}={environ[name]}" for name in _JOB if environ.get(name))
