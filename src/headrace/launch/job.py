"""Start one program on many ranks: what `headrace run` does.

A `Job` describes it, checked once, here. `launch(job)` runs it and returns the exit code:
0 when all ranks ended with 0; else the code of the first rank that failed (128 + n when signal n ended it);
128 + n when signal n asked the launcher itself to end; 127 when there is no such program.

Two engines start the ranks:
* torch: torch's elastic agent, one on each machine (`elastic`). It brings restarts and rendezvous. Without torch
  there is no engine of our own: it would be a second set of rules for the same job, to start programs that want torch.
* mpi: `mpirun` (`mpi`), which reaches other machines by itself and needs no torch.

Both give a rank torch's variables (RANK, WORLD_SIZE, LOCAL_RANK, ..., MASTER_ADDR, MASTER_PORT) and three of ours
(`env.OWN_RUN`, `env.LOCAL_REPLICAS`, `env.OWN_JOB`), tag the lines that it writes, and leave no process behind: a rank
dies with its launcher, and what a rank has started is ended after it. The first signal ends the job in an orderly way,
the second one at once.
"""

import os
import re
import shutil
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from headrace.errors import BadOption, HeadraceError, missing
from headrace.launch import rank
from headrace.launch.leftovers import end_job
from headrace.launch.output import TaggedOutput
from headrace.ranks import env


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one program. A field is an option of `headrace run`."""

    program: tuple[str, ...] = ()
    num_replicas: int | None = None  # copies of the model in the whole job; None: one an instance
    num_instances: int = 1  # processes in the whole job
    engine: str | None = None  # torch | mpi; None: mpi when `host` names other machines
    host: str = "localhost"
    nnodes: str = "1"  # machines that each run this command, N or MIN:MAX
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    max_restarts: int = 0
    only_output_from_instance: int | None = None
    mpi_global_args: str = ""
    verbose: int = 0
    name: str = field(default_factory=lambda: uuid.uuid4().hex)  # of this run on this machine

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
        if "[" in self.host or not all(self.hosts) or len({*self.hosts}) < len(self.hosts):
            raise BadOption(f"--host {self.host}: write the name of each machine once, with commas: h0,h1,h2")
        if self.num_instances % self.machines:
            raise BadOption(
                f"--num-instances {self.num_instances} counts the processes on all {self.machines} machines, which get "
                f"equally many; write a multiple of {self.machines}"
            )
        if self.chosen_engine == "mpi":
            self._check_mpi()
        else:
            self._check_torch()

    def _check_mpi(self) -> None:
        if self.max_restarts:
            raise BadOption("--max-restarts: mpirun does not restart ranks; use --engine torch")
        if self.nnodes != "1" or self.node_rank is not None or self.rdzv_endpoint:
            raise BadOption(
                "--nnodes, --node-rank, --rdzv-endpoint: mpirun starts the ranks of all machines; name them with --host"
            )

    def _check_torch(self) -> None:
        lowest, highest = self.nodes
        if self.mpi_global_args:
            raise BadOption("--mpi-global-args are for mpirun; add --engine mpi")
        if not self.is_here:
            raise BadOption(
                "--host with --engine torch: torch starts no processes on other machines; use --engine mpi, or run "
                "this command on each of them with --nnodes, --node-rank and --rdzv-endpoint"
            )
        if self.rdzv_endpoint is None:
            if highest > 1 or self.node_rank is not None:
                raise BadOption("--nnodes: say where the machines meet, the same on each: --rdzv-endpoint HOST:PORT")
        elif not re.fullmatch(r".+:\d+", self.rdzv_endpoint):
            raise BadOption(f"--rdzv-endpoint {self.rdzv_endpoint}: write HOST:PORT")
        if self.node_rank is not None and (lowest != highest or not 0 <= self.node_rank < highest):
            raise BadOption(f"--node-rank {self.node_rank}: give 0..{highest - 1}, with a fixed --nnodes")

    @property
    def replicas(self) -> int:
        return self.num_instances if self.num_replicas is None else self.num_replicas

    @property
    def hosts(self) -> list[str]:
        return [name.strip() for name in self.host.split(",")]

    @property
    def is_here(self) -> bool:
        """Whether the only machine is this one."""
        name = socket.gethostname()
        return self.hosts[1:] == [] and self.hosts[0] in ("localhost", "127.0.0.1", name, name.partition(".")[0])

    @property
    def nodes(self) -> tuple[int, int]:
        """How many machines run this command: at least, at most."""
        bounds = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", self.nnodes)
        if not bounds or int(bounds[2] or bounds[1]) < int(bounds[1]):
            raise BadOption(f"--nnodes {self.nnodes}: write N or MIN:MAX, at least 1")
        return int(bounds[1]), int(bounds[2] or bounds[1])

    @property
    def machines(self) -> int:
        return max(len(self.hosts), self.nodes[1])

    @property
    def local_instances(self) -> int:
        return self.num_instances // self.machines

    @property
    def chosen_engine(self) -> str:
        return self.engine or ("torch" if self.is_here else "mpi")

    def variables(self) -> dict[str, str]:
        """What the environment of every rank gets besides what says which rank it is."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        defaults = {
            # as many threads as there are cores, in every rank, would be that many times too many
            env.OMP_THREADS: str(max(1, cores // self.local_instances)),
            env.UNBUFFERED: "1",
        }
        wanted = {name: env.current().get(name, value) for name, value in defaults.items()}
        return wanted | {env.OWN_JOB: self.name, env.LOCAL_REPLICAS: str(self.replicas // self.num_instances)}


def bound_to(parent: int, death: int) -> list[str]:
    """The start of a command line: what is run by it gets the signal `death` when the process `parent` ends.

    The local rank and the program follow; see `rank`.
    """
    return [sys.executable, "-I", "-S", str(rank.__file__), str(parent), str(int(death))]


@contextmanager
def stopped_by_signals(job: Job, stop: Callable[[signal.Signals], Any]) -> Iterator[None]:
    """Inside, the first signal that asks us to end calls `stop`; another one ends all processes of the job at once.

    A signal that was ignored when we were started (by nohup, or in the background) stays ignored.
    """
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1:
            stop(signal.Signals(number))
        else:
            end_job(job.name)
            raise SystemExit(128 + number)

    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    before = {n: signal.signal(n, handle) for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def launch(job: Job, out: int = 1, err: int = 2) -> int:
    """Run the job to its end; what ranks write goes to the files with these numbers, as tagged lines."""
    if env.current().get(env.OWN_RANK):
        raise BadOption(f"{env.OWN_RANK} is set and would make every rank the same one; unset it")
    if os.name != "posix":
        raise BadOption("headrace run needs Linux or macOS; here, start the program with torchrun")
    if not job.program:
        raise BadOption("no program to run; write it after the options: headrace run --num-instances 2 python train.py")
    output = TaggedOutput(out, err, job.only_output_from_instance)
    if job.is_here and shutil.which(job.program[0]) is None:
        output.say(f"{job.program[0]}: there is no such program")
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
    except OSError as error:
        raise HeadraceError(
            f"ranks cannot be started: {error}; see `ulimit -n` and `ulimit -u` of this shell"
        ) from error
    finally:
        end_job(job.name)
    if isinstance(output.broken, BrokenPipeError):
        return 128 + signal.SIGPIPE  # as if SIGPIPE had ended us: the reader of our output has gone
    if output.broken:
        raise HeadraceError(f"what ranks write cannot be shown ({output.broken}); they were ended")
    return code
