"""Start one program on many ranks: what `headrace run` does.

A `Job` describes it, checked once, here. `launch(job, out, err)` runs it and returns the exit code:
0 when all ranks ended with 0; else the code of the rank that failed first (128 + n when signal n ended it);
128 + n when signal n asked the launcher itself to end; 127 when there is no such program.

Two engines start the ranks:
* torch: torch's elastic agent, one on each machine (`elastic`). It brings restarts and rendezvous. Without torch
  there is no engine of our own: it would be a second set of rules for the same job, to start programs that want torch.
* mpi: `mpirun` (`mpi`), which reaches other machines by itself and needs no torch.

Both give a rank torch's variables (RANK, WORLD_SIZE, LOCAL_RANK, ..., MASTER_ADDR, MASTER_PORT), a mark
(`env.OWN_RUN`) and three about replicas (`env.replicas`), show its output as tagged lines (`output`), and leave no
process behind: a rank dies with its launcher.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import IO, Any

from headrace.errors import BadOption, missing
from headrace.launch import hosts
from headrace.launch import rank as rank_script
from headrace.launch.output import TaggedOutput
from headrace.launch.topology import topology
from headrace.ranks import env


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one program. A field is an option of `headrace run`."""

    program: tuple[str, ...] = ()
    num_replicas: int | None = None  # copies of the model in the whole job; None: one an instance
    num_instances: int = 1  # processes in the whole job
    engine: str | None = None  # torch | mpi; None: mpi when `host` names other machines
    host: str | None = None
    hostfile: str | None = None
    host_subnet: str | None = None
    nnodes: str = "1"  # machines that each run this command, N or MIN:MAX
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None  # None: "headrace"
    max_restarts: int = 0
    numa_aware: bool = False
    print_topology: bool = False
    only_output_from_instance: int | None = None
    tag_output: bool = False  # lines as mpirun and PopRun tag them, [1,0]<stdout>:, instead of [rank 0]
    offline_mode: bool = False
    env: tuple[str, ...] = ()  # NAME=VALUE, or NAME for the value that it has here
    mpi_global_args: str = ""
    mpi_local_args: str = ""
    verbose: int = 0

    def __post_init__(self) -> None:
        if self.num_instances < 1:
            raise BadOption(f"--num-instances {self.num_instances}: start at least one")
        if self.replicas < 1 or self.replicas % self.num_instances:
            raise BadOption(
                f"--num-replicas {self.replicas} --num-instances {self.num_instances}: replicas are spread evenly over "
                f"instances; write a multiple of {self.num_instances} replicas"
            )
        only = self.only_output_from_instance
        if only is not None and not 0 <= only < self.num_instances:
            raise BadOption(f"--only-output-from-instance {only}: there are instances 0..{self.num_instances - 1}")
        if self.max_restarts < 0:
            raise BadOption(f"--max-restarts {self.max_restarts}: write 0 or more")
        if self.engine not in (None, "torch", "mpi"):
            raise BadOption(f"--engine {self.engine}: write torch or mpi")
        self._check_places()
        self._check_env()

    def _check_places(self) -> None:
        lowest, nodes = self.nodes
        endpoint = self.endpoint
        if self.host and self.hostfile:
            raise BadOption("--host and --hostfile both name the machines; give one of them")
        if self.num_instances % len(self.hosts):
            raise BadOption(
                f"--num-instances {self.num_instances} cannot be spread evenly over {len(self.hosts)} hosts; "
                f"write a multiple of {len(self.hosts)}"
            )
        if self.num_instances % nodes:
            raise BadOption(
                f"--num-instances {self.num_instances} cannot be spread evenly over --nnodes {self.nnodes}; "
                f"it counts the processes on all machines: write a multiple of {nodes}"
            )
        if self.host_subnet:
            hosts.network(self.host_subnet)
        if self.rdzv_id and (endpoint is None or self.chosen_engine == "mpi"):
            raise BadOption("--rdzv-id is the name of the job at --rdzv-endpoint, for --engine torch; leave it out")
        if self.chosen_engine == "mpi":
            if self.max_restarts:
                raise BadOption("--max-restarts: mpirun does not restart ranks; use --engine torch")
            if self.nnodes != "1" or self.node_rank is not None:
                raise BadOption("--nnodes, --node-rank: mpirun starts the ranks of all machines; name them with --host")
            return
        if self.mpi_global_args or self.mpi_local_args:
            raise BadOption("--mpi-global-args, --mpi-local-args are for mpirun; add --engine mpi")
        if not hosts.are_here(self.hosts):
            raise BadOption(
                "--host with --engine torch: torch starts no processes on other machines; use --engine mpi, or run "
                "this command on each of them with --nnodes, --node-rank and --rdzv-endpoint"
            )
        if nodes > 1 and not endpoint:
            raise BadOption("--nnodes: say where the machines meet, the same on each: --rdzv-endpoint HOST:PORT")
        if self.node_rank is not None and (lowest != nodes or not 0 <= self.node_rank < nodes):
            raise BadOption(f"--node-rank {self.node_rank}: give 0..{nodes - 1} and a fixed --nnodes, or leave it out")
        if self.node_rank is not None and not endpoint:
            raise BadOption("--node-rank: say where machine 0 listens: --rdzv-endpoint HOST:PORT")

    def _check_env(self) -> None:
        for item in self.env:
            name, equals, _ = item.partition("=")
            if not name:
                raise BadOption(f"--env {item}: write NAME or NAME=VALUE")
            if name in env.SET_BY_RUN:
                raise BadOption(f"--env {item}: the launcher sets {name} for each rank; leave it out")
            if not equals and name not in env.current():
                raise BadOption(f"--env {name}: it is not set here; write {name}=VALUE")

    @property
    def replicas(self) -> int:
        return self.num_instances if self.num_replicas is None else self.num_replicas

    @property
    def local_replicas(self) -> int:
        return self.replicas // self.num_instances

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        if self.hostfile:
            return hosts.read_file(Path(self.hostfile))
        return hosts.expand(self.host) if self.host else ("localhost",)

    @property
    def nodes(self) -> tuple[int, int]:
        """How many machines run this command: at least, at most."""
        lowest, _, highest = self.nnodes.partition(":")
        try:
            bounds = int(lowest), int(highest or lowest)
        except ValueError:
            raise BadOption(f"--nnodes {self.nnodes}: write N or MIN:MAX") from None
        if not 1 <= bounds[0] <= bounds[1]:
            raise BadOption(f"--nnodes {self.nnodes}: write N or MIN:MAX, at least 1")
        return bounds

    @property
    def interface(self) -> tuple[str, str] | None:
        """Name and address of this machine's network interface in --host-subnet, if that is given."""
        return hosts.interface(hosts.network(self.host_subnet)) if self.host_subnet else None

    @property
    def local_instances(self) -> int:
        return self.num_instances // max(len(self.hosts), self.nodes[1])

    @property
    def chosen_engine(self) -> str:
        return self.engine or ("torch" if hosts.are_here(self.hosts) else "mpi")

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Where ranks meet, if the user says so."""
        if not self.rdzv_endpoint:
            return None
        host, _, port = self.rdzv_endpoint.rpartition(":")
        if not host or not port.isdigit():
            raise BadOption(f"--rdzv-endpoint {self.rdzv_endpoint}: write HOST:PORT")
        return host, int(port)

    def picture(self) -> str:
        nodes = self.nodes[1]
        hosts = self.hosts if nodes == 1 else tuple(f"node {number}" for number in range(nodes))
        return topology(hosts, self.num_instances, self.replicas)

    def variables(self, rank: int, ranks: int, environ: Mapping[str, str]) -> dict[str, str]:
        """What a rank's environment gets besides torch's variables."""
        local = self.local_replicas
        variables = {
            env.OWN_RUN: f"{rank}/{ranks}",
            env.TOTAL_REPLICAS: str(local * ranks),  # of the ranks that are there: an elastic job may have fewer
            env.LOCAL_REPLICAS: str(local),
            env.REPLICA_OFFSET: str(local * rank),
        }
        if env.OMP_THREADS not in environ:  # as many as there are cores would be that many times too many
            variables[env.OMP_THREADS] = str(max(1, len(os.sched_getaffinity(0)) // self.local_instances))
        if env.UNBUFFERED not in environ:
            variables[env.UNBUFFERED] = "1"
        if self.offline_mode:
            variables |= dict.fromkeys(env.DEVICES, "")
        for item in self.env:
            name, equals, value = item.partition("=")
            variables[name] = value if equals else environ[name]
        return variables


@contextmanager
def stop_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Inside, `handler` is called for each signal that asks the launcher to end."""
    stopping = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.signal(number, handler) for number in stopping}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def bound_to(parent: int, death: int) -> list[str]:
    """The start of a command line: what is run by it gets the signal `death` when the process `parent` ends.

    The local rank ("-" for no NUMA node) and the program follow; see `rank`.
    """
    return [sys.executable, "-I", "-S", str(rank_script.__file__), str(parent), str(int(death))]


def launch(job: Job, out: IO[bytes], err: IO[bytes]) -> int:
    """Run the job to its end; what ranks write goes to `out` and `err` as tagged lines."""
    if env.current().get(env.OWN_RANK):
        raise BadOption(f"{env.OWN_RANK} is set and would make every rank the same one; unset it")
    if not job.program:
        raise BadOption("no program to run; write it after the options: headrace run --num-instances 2 python train.py")
    output = TaggedOutput(out, err, job.only_output_from_instance, job.tag_output)
    if job.numa_aware and len(rank_script.numa_nodes()) == 1 and hosts.are_here(job.hosts):
        output.say("headrace: --numa-aware: this machine has one NUMA node, so it changes nothing")
    if hosts.are_here(job.hosts) and shutil.which(job.program[0]) is None:
        output.say(f"headrace: {job.program[0]}: there is no such program")
        return 127
    if job.chosen_engine == "mpi":
        from headrace.launch.mpi import run
    else:
        try:
            from headrace.launch.elastic import run
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] == "torch":
                raise missing("torch", "torch") from None
            raise
    try:
        code = run(job, output)
    finally:
        output.drop_hidden()
    if isinstance(output.broken, BrokenPipeError):
        return 128 + signal.SIGPIPE  # as if SIGPIPE had ended us: the reader of our output has gone
    if output.broken:
        raise output.broken
    return code
