"""Ranks under torch's elastic agent; their output is shown as tagged lines.

    main thread        the agent: rendezvous, start, watch, restart, stop
    thread of RankPipes  pipes of all ranks -> TaggedOutput

torch asks its `LogsSpecs` before each attempt to which file a rank's stdout and stderr go. Ours answers with
`/dev/fd/N` of a pipe, and adds to the environment of the ranks. (torch's own way to show the output of ranks tears
lines that are written in pieces, replaces bytes that are not UTF-8, and has one tag for both streams.)

An agent ends the ranks of its own machine. On several machines the ranks of the others notice a failure by their next
collective, as under torchrun. torch looks every 0.1 s; of ranks that failed in between, the lowest counts as the first.
"""

import logging
import os
import signal
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Self

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from headrace.errors import HeadraceError
from headrace.launch.job import Job, bound_to, stopped_by_signals
from headrace.launch.leftovers import end_job
from headrace.launch.output import RankPipes, TaggedOutput
from headrace.ranks import env

_PATIENCE = 5.0  # for a reader of our output that does not read, once we are told to end


def run(job: Job, output: TaggedOutput) -> int:
    """The exit code of the job; see `launch`."""
    # That a rank has failed is said here at the end; before a restart torch alone knows which one.
    _quiet(logging.INFO if job.verbose else logging.ERROR if job.max_restarts else logging.CRITICAL)
    output.on_broken = lambda: os.kill(os.getpid(), signal.SIGTERM)
    # torch expands `$` in arguments: the local rank is asked for, and the rest is meant as it is
    entry, *before = bound_to(os.getpid(), signal.SIGKILL)
    args = [*map(_literal, before), "${local_rank}", *map(_literal, job.program)]
    with JobAttempts(job, output) as attempts, _fresh_stores(job):
        try:
            try:
                elastic_launch(_config(job, attempts), entry)(*args)
            finally:
                attempts.close()
            return 0
        except SignalException as stopped:
            attempts.close()  # the signal may have come while it was closed
            return 128 + stopped.sigval
        except ChildFailedError as failed:
            return _told(job, failed, output)
        except (RendezvousError, DistError) as error:
            where = job.rdzv_endpoint or "localhost"
            raise HeadraceError(f"the machines of the job do not reach each other at {where}: {error}") from error


def _told(job: Job, failed: ChildFailedError, output: TaggedOutput) -> int:
    """Say which rank has failed; its exit code, as a shell gives it."""
    rank, failure = failed.get_first_failure()
    code = failure.exitcode
    how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}, {failure.signal_name()}"
    output.say(f"rank {rank} {how}{'; the others were ended' if job.num_instances > 1 else ''}")
    return code if code > 0 else 128 - code


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _quiet(level: int) -> None:
    """Set the level of torch's own log; each of its modules has a logger."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic.")]:
        logging.getLogger(name).setLevel(level)


def _fresh_stores(job: Job) -> AbstractContextManager[None]:
    """Ranks that are started again must not find what those before them wrote.

    torch's agent has one store for all attempts, and gloo reads in it where the others listen: after a restart it finds
    the addresses of the dead as often as not, and gives up or waits for half an hour.
    """
    lowest, highest = job.nodes
    again = job.max_restarts > 0 or lowest != highest
    return env.with_variable(env.OWN_STORE, "1") if again else nullcontext()


def _config(job: Job, attempts: "JobAttempts") -> LaunchConfig:
    lowest, highest = job.nodes
    fixed = {} if job.node_rank is None else {"rank": job.node_rank}
    config = LaunchConfig(
        min_nodes=lowest,
        max_nodes=highest,
        nproc_per_node=job.local_instances,
        run_id="headrace" if job.rdzv_endpoint else job.name,
        role="default",
        rdzv_backend="static" if fixed else "c10d",
        rdzv_endpoint=job.rdzv_endpoint or "localhost:0",
        rdzv_configs=fixed,
        max_restarts=job.max_restarts,
        # Asking the network for our own name may take seconds, or fail.
        local_addr="localhost" if highest == 1 else None,
        logs_specs=attempts,
    )
    # The other signals are ours. (Old versions of torch handle all of them: there a second one waits as the first.)
    config.signals_to_handle = "SIGQUIT"
    return config


class JobAttempts(LogsSpecs):
    """Where torch sends what ranks write, for each time that they are started."""

    def __init__(self, job: Job, output: TaggedOutput) -> None:
        super().__init__(log_dir=os.devnull)
        self._job = job
        self._output = output
        self._pipes: RankPipes | None = None
        self._signals = ExitStack()
        self._stopped = False

    def __enter__(self) -> Self:
        # Machines that wait for each other wait outside of Python: until there are ranks, a signal just ends us.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._signals.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_DFL))
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.close()

    @property
    def root_log_dir(self) -> str:
        return os.devnull

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        if self._pipes is None:
            self._signals.enter_context(stopped_by_signals(self._job, self._stop))
        self.close()
        restarts = {variables[env.RESTARTS] for variables in envs.values()} - {"0"}
        if restarts:
            self._output.say(f"all ranks are started again ({restarts.pop()} of {self._job.max_restarts})")
        pipes = self._pipes = RankPipes(self._output)
        files: dict[str, dict[int, str]] = {"stdout": {}, "stderr": {}}
        try:
            for local_rank, variables in envs.items():
                for name, paths in files.items():
                    paths[local_rank] = f"/dev/fd/{pipes.pipe(int(variables[env.RANK]), name)}"
        except OSError:
            pipes.close()  # so that there are files again for what is left to do
            raise
        pipes.start()
        for variables in envs.values():
            variables |= self._job.variables()
            variables |= {env.OWN_RUN: f"{variables[env.RANK]}/{variables[env.RANKS]}", env.ERROR_FILE: ""}
        return LogsDest(stdouts=files["stdout"], stderrs=files["stderr"], error_files=dict.fromkeys(envs, os.devnull))

    def close(self) -> None:
        """End what ranks have left running, and show what they have written."""
        end_job(self._job.name)
        if self._pipes:
            self._pipes.close(_PATIENCE if self._stopped else None)

    def _stop(self, number: signal.Signals) -> None:
        self._stopped = True
        raise SignalException(f"got {number.name}", number)
