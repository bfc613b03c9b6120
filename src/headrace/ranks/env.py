"""Every environment variable that headrace reads or sets, each name written once, here.

The only module below `cli` that looks at `os.environ`, and only when a function is called, never at import: a restarted
rank reads again. Everything else takes the mapping as an argument, so that tests and tools pass their own.
An empty value counts as not set.

    LAUNCHERS    the most trusted first: which variables say that it started this process, and which give each field
    replicas()   what `headrace run` says about copies of the model: how many in the job, how many here, from which on
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
OWN_LOCAL_RANK = "HEADRACE_LOCAL_RANK"
OWN_LOCAL_RANKS = "HEADRACE_LOCAL_WORLD_SIZE"

# What `headrace run` says: "rank/ranks" of the process that it started, the replicas that this one drives, and a name
# that all processes of this job on this machine have in common.
OWN_RUN = "HEADRACE_RUN"
LOCAL_REPLICAS = "HEADRACE_NUM_LOCAL_REPLICAS"
OWN_JOB = "HEADRACE_JOB"

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
OMPI_LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"
OMPI_LOCAL_RANKS = "OMPI_COMM_WORLD_LOCAL_SIZE"
SLURM_PROCID = "SLURM_PROCID"
SLURM_STEP_ID = "SLURM_STEP_ID"
SLURM_NODEID = "SLURM_NODEID"
SLURM_TASKS_PER_NODE = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
SLURM_PTY = "SLURM_PTY_PORT"  # only the one task of `srun --pty` has it

# What `headrace run` sets besides the ranks, and what mpirun is asked to pass on to other machines.
OMP_THREADS = "OMP_NUM_THREADS"
UNBUFFERED = "PYTHONUNBUFFERED"
FORWARDED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Launcher:
    """Where one launcher writes each field; of several names the first that is set counts.

    A row with marks alone is a launcher that nobody here can test: its ranks are recognised, and refused.
    """

    name: str
    marks: tuple[str, ...] = ()  # if the first is set, this launcher has started us; a claim needs all of them
    rank: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    several: str = field(default="", kw_only=True)  # what a mark holds where there is more than one process

    def left_traces(self, environ: Mapping[str, str]) -> bool:
        """Whether a variable of this launcher is set: its first mark or, without marks, its rank or number of ranks."""
        said = [environ.get(name, "") for name in self.marks[:1] or self.rank + self.ranks]
        return any(text and self.several in text for text in said)

    def names(self) -> tuple[str, ...]:
        """The variables that a claim needs, each once."""
        return tuple(dict.fromkeys(self.marks + self.rank + self.ranks))


def _launcher(name: str, marks: str | tuple[str, ...], *fields: str | tuple[str, ...], several: str = "") -> Launcher:
    """A row of the table below: in each column the name of a variable, or "", or several names that say the same."""
    columns = [names if isinstance(names, tuple) else (names,) if names else () for names in (marks, *fields)]
    return Launcher(name, *columns, several=several)


_TORCHS = (RANK, RANKS, LOCAL_RANK, LOCAL_RANKS, GROUP_RANK, GROUP_RANKS)
OWN = _launcher(
    "headrace variables", OWN_RANK, OWN_RANK, OWN_RANKS, OWN_LOCAL_RANK, OWN_LOCAL_RANKS, "HEADRACE_NODE_RANK",
    "HEADRACE_NODES",
)  # fmt: skip
# What `headrace run` sets are torch's variables; the mark says that they are still its own.
RUN = _launcher("headrace run", OWN_RUN, *_TORCHS)

# The order is the order of trust: a launcher started by another one stands before it. `srun torchrun` leaves both sets
# in the environment, and only torchrun's is about this process.
# fmt: off
LAUNCHERS = (
    #         name, marks,
    #         rank, ranks, local rank, local ranks, node, nodes
    _launcher("torchrun", RUN_ID, *_TORCHS),
    _launcher("torch variables", "",
              RANK, RANKS, LOCAL_RANK, LOCAL_RANKS, ("NODE_RANK", GROUP_RANK), GROUP_RANKS),
    _launcher("jax variables", JAX_COORDINATOR,
              ("JAX_PROCESS_ID", "JAX_PROCESS_INDEX"), ("JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT")),
    _launcher("horovodrun", "HOROVOD_RANK"),
    _launcher("poprun", "POPDIST_NUM_TOTAL_REPLICAS"),
    _launcher("MVAPICH2", "MV2_COMM_WORLD_RANK"),
    _launcher("PALS", "PALS_RANKID"),
    _launcher("Flux", "FLUX_TASK_RANK"),
    _launcher("jsrun", "JSM_NAMESPACE_RANK"),
    # not OMPI_COMM_WORLD_NODE_RANK: that is this process's number on its node, not the node's number
    _launcher("openmpi", "",
              OMPI_RANK, OMPI_RANKS, OMPI_LOCAL_RANK, OMPI_LOCAL_RANKS),
    _launcher("mpich", "",
              "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # the step, not the allocation: a step may be smaller
    _launcher("slurm", (SLURM_PROCID, SLURM_STEP_ID),
              SLURM_PROCID, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), "SLURM_LOCALID", "", SLURM_NODEID,
              ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")),
    _launcher("a TensorFlow cluster", "TF_CONFIG", several='"worker"'),
    _launcher("Kubeflow", "PET_NNODES"),
    _launcher("a Kubernetes Indexed Job", "JOB_COMPLETION_INDEX"),
    _launcher("a TPU pod", "TPU_WORKER_HOSTNAMES", several=","),
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


def started_by_run(environ: Mapping[str, str]) -> bool:
    """Whether torch's variables are those that `headrace run` set, and not those of a launcher started inside it."""
    return environ.get(OWN_RUN) == f"{environ.get(RANK)}/{environ.get(RANKS)}"


def replicas(environ: Mapping[str, str] | None = None) -> Replicas | None:
    """What `headrace run` says about replicas; None when it did not start us."""
    environ = current() if environ is None else environ
    local = integer(environ, LOCAL_REPLICAS)
    if local is None:
        return None
    rank, ranks = integer(environ, RANK), integer(environ, RANKS)
    if not started_by_run(environ) or rank is None or ranks is None or local < 1:
        raise BadOption(
            f"{LOCAL_REPLICAS}={local} is set, but {OWN_RUN}={environ.get(OWN_RUN)}, {RANK}={rank}, {RANKS}={ranks}: "
            "another launcher was started inside `headrace run`; start the ranks with one launcher"
        )
    return Replicas(local * ranks, local, local * rank)


def job(environ: Mapping[str, str] | None = None) -> str:
    """The same text on all ranks of one attempt of one job, another for other jobs as far as launchers tell."""
    environ = current() if environ is None else environ
    return " ".join(f"{name}={environ[name]}" for name in _JOB if environ.get(name))
