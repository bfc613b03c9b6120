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
from dataclasses import dataclass, field

from headrace.errors import BadOption

# What a user sets by hand to overrule every launcher; `headrace run` never sets these.
OWN_RANK = "HEADRACE_RANK"
OWN_RANKS = "HEADRACE_WORLD_SIZE"

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
RUN_ID = "TORCHELASTIC_RUN_ID"
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # "1": ranks make a store of their own, instead of using the agent's
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

JAX_COORDINATOR = "JAX_COORDINATOR_ADDRESS"
OMPI_RANK = "OMPI_COMM_WORLD_RANK"
OMPI_RANKS = "OMPI_COMM_WORLD_SIZE"
OMPI_LOCAL_RANKS = "OMPI_COMM_WORLD_LOCAL_SIZE"
PALS_RANK = "PALS_RANKID"
PMI_RANKS = "PMI_SIZE"
SLURM_PROCID = "SLURM_PROCID"
SLURM_STEP_ID = "SLURM_STEP_ID"
SLURM_NODEID = "SLURM_NODEID"
SLURM_TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
SLURM_PTY = "SLURM_PTY_PORT"  # only the one task of `srun --pty` has it
FLUX_NODES = "FLUX_JOB_NNODES"
PET_NODES = "PET_NNODES"
PET_NODE = "PET_NODE_RANK"
PET_LOCAL_RANKS = "PET_NPROC_PER_NODE"
TF_CONFIG = "TF_CONFIG"
TPU_HOSTS = "TPU_WORKER_HOSTNAMES"
KUBERNETES_INDEX = "JOB_COMPLETION_INDEX"

# What `headrace run` sets besides the ranks.
OMP_THREADS = "OMP_NUM_THREADS"
UNBUFFERED = "PYTHONUNBUFFERED"
DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
FORWARDED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")  # to other machines, as PopRun does


@dataclass(frozen=True, slots=True)
class Launcher:
    """Where one launcher writes each field; of several names the first that is set counts."""

    name: str
    marks: tuple[str, ...] = ()  # if the first is set, this launcher has started us; a claim needs all of them
    rank: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    one_per_machine: bool = field(default=False, kw_only=True)
    """Starts one process a machine (or pod): local fields need no variable."""

    def left_traces(self, environ: Mapping[str, str]) -> bool:
        """Whether a variable of this launcher is set: its first mark or, without marks, its rank or number of ranks."""
        return any(environ.get(name) for name in self.marks[:1] or self.rank + self.ranks)

    def names(self) -> tuple[str, ...]:
        """The variables that a claim needs, each once."""
        return tuple(dict.fromkeys(self.marks + self.rank + self.ranks))


def _launcher(
    name: str, marks: str | tuple[str, ...], *fields: str | tuple[str, ...], one_per_machine: bool = False
) -> Launcher:
    """A row of the table below: in each column the name of a variable, or "", or several names that say the same."""
    columns = [names if isinstance(names, tuple) else (names,) if names else () for names in (marks, *fields)]
    return Launcher(name, *columns, one_per_machine=one_per_machine)


_TORCHS = (RANK, RANKS, LOCAL_RANK, LOCAL_RANKS, GROUP_RANK, GROUP_RANKS)
OWN = _launcher(
    "headrace variables", OWN_RANK, OWN_RANK, OWN_RANKS, "HEADRACE_LOCAL_RANK", "HEADRACE_LOCAL_WORLD_SIZE",
    "HEADRACE_NODE_RANK", "HEADRACE_NODES",
)  # fmt: skip
# What `headrace run` sets are torch's variables; the mark says that they are still its own.
RUN = _launcher("headrace run", OWN_RUN, *_TORCHS)
# What it sets for each rank, or what would overrule that.
SET_BY_RUN = frozenset(
    (*_TORCHS, MASTER_ADDR, MASTER_PORT, OWN_RUN, TOTAL_REPLICAS, LOCAL_REPLICAS, REPLICA_OFFSET, OWN_RANK, OWN_RANKS)
)

# The order is the order of trust: a launcher started by another one stands before it. `srun torchrun` leaves both sets
# in the environment, and only torchrun's is about this process.
# fmt: off
LAUNCHERS = (
    #         name, marks,
    #         rank, ranks, local rank, local ranks, node, nodes
    _launcher("poprun", POPDIST_TOTAL_REPLICAS,
              OMPI_RANK, OMPI_RANKS, "POPDIST_LOCAL_INSTANCE_INDEX", OMPI_LOCAL_RANKS),
    _launcher("torchrun", RUN_ID, *_TORCHS),
    _launcher("torch variables", "",
              RANK, RANKS, LOCAL_RANK, LOCAL_RANKS, ("NODE_RANK", GROUP_RANK), GROUP_RANKS),
    _launcher("horovod", "",
              "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
              "HOROVOD_CROSS_SIZE"),
    _launcher("jax variables", JAX_COORDINATOR,
              ("JAX_PROCESS_ID", "JAX_PROCESS_INDEX"), ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT")),
    _launcher("tf_config", TF_CONFIG, one_per_machine=True),
    # not OMPI_COMM_WORLD_NODE_RANK: that is this process's number on its node, not the node's number
    _launcher("openmpi", "",
              OMPI_RANK, OMPI_RANKS, "OMPI_COMM_WORLD_LOCAL_RANK", OMPI_LOCAL_RANKS),
    _launcher("mvapich2", "",
              "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    _launcher("pals", PALS_RANK,
              PALS_RANK, ("PALS_SIZE", PMI_RANKS), "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_NODEID"),
    _launcher("flux", "",
              "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
    _launcher("jsrun", "",
              "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
    _launcher("mpich", "",
              "PMI_RANK", PMI_RANKS, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # the step, not the allocation: a step may be smaller
    _launcher("slurm", (SLURM_PROCID, SLURM_STEP_ID),
              SLURM_PROCID, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), "SLURM_LOCALID", "", SLURM_NODEID,
              ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")),
    _launcher("kubeflow", (PET_NODES, PET_NODE), one_per_machine=True),
    _launcher("tpu", TPU_HOSTS, "TPU_WORKER_ID", one_per_machine=True),
    # the number of pods is not in a pod's environment
    _launcher("kubernetes", (KUBERNETES_INDEX, "KUBERNETES_SERVICE_HOST"),
              KUBERNETES_INDEX, OWN_RANKS, one_per_machine=True),
)
# fmt: on

# What tells two jobs apart. All that is set is joined: each alone may be a default that every job has.
_JOB = (
    RUN_ID, RESTARTS, MASTER_ADDR, MASTER_PORT, "PMIX_NAMESPACE", "SLURM_JOB_ID", SLURM_STEP_ID, "SLURM_RESTART_COUNT",
    "FLUX_JOB_ID", "PALS_APID", "LSB_JOBID", "PBS_JOBID",
)  # fmt: skip


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
