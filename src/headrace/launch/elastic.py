"""Ranks under torch's elastic agent; their output is shown as tagged lines.

    main thread     the agent: rendezvous, start, watch, restart, stop
    OutputReader    pipes of all ranks -> TaggedOutput

Two extension points of torch are used. `LogsSpecs.reify(envs)` is called before each attempt and says to which file a
rank's stdout and stderr go, and may add to its environment. Ours answers with `/dev/fd/N` of a pipe, so nothing is
written to disk. `_start_workers`, `_monitor_workers` and `_shutdown` of the agent are overridden to learn which ranks
were started and which failed. torch looks every 0.1 s and reports ranks that failed in between in any order; the
OutputReader knows which was first.

An agent ends the ranks of its own machine. On several machines the ranks of the others notice a failure by their next
collective, as under torchrun.

torch expands `$` in arguments (its `${local_rank}` macro); ours are escaped, so that a program sees what was typed.
"""

import logging
import os
import signal
import uuid
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from headrace.launch.job import Job, bound_to, stop_signals
from headrace.launch.output import TaggedOutput
from headrace.launch.reader import OutputReader
from headrace.launch.sessions import end_sessions
from headrace.ranks import env

_RENDEZVOUS_SECONDS = 900


def run(job: Job, output: TaggedOutput) -> int:
    """The exit code of the job; see `launch`."""
    _quiet({0: logging.CRITICAL, 1: logging.WARNING}.get(job.verbose, logging.INFO))
    output.on_broken = lambda: os.kill(os.getpid(), signal.SIGTERM)
    reader = OutputReader(output)
    try:
        with stop_signals(_raise), _fresh_stores(job):
            pipes = RankPipes(job, reader)
            spec = _spec(job)
            agent = Agent(spec, pipes, job, reader)
            try:
                result = agent.run()
            finally:
                end_sessions(agent.started)
                pipes.close()
                output.on_broken = lambda: None  # there is nothing left to end
                reader.close()
            spec.rdzv_handler.shutdown()
        return agent.code if result is not None and result.is_failed() else 0
    except SignalException as stopped:
        return 128 + stopped.sigval
    finally:
        reader.close()


def _quiet(level: int) -> None:
    """Set the level of torch's own log; each of its modules has a logger."""
    place = "torch.distributed.elastic"
    for name in [place, *(name for name in logging.root.manager.loggerDict if name.startswith(f"{place}."))]:
        logging.getLogger(name).setLevel(level)


def _fresh_stores(job: Job) -> AbstractContextManager[None]:
    """Ranks that are started again must not find what those before them wrote.

    torch's agent has one store for all attempts, and gloo reads in it where the others listen: after a restart it finds
    the addresses of the dead as often as not, and gives up or waits for half an hour.
    """
    lowest, highest = job.nodes
    again = job.max_restarts > 0 or lowest != highest
    return env.with_variable(env.OWN_STORE, "1") if again else nullcontext()


def _raise(number: int, frame: FrameType | None) -> None:
    """What torch's own handler does: signals before and after the time of that end the job in the same way."""
    raise SignalException(f"got signal {number}", signal.Signals(number))


def _spec(job: Job) -> WorkerSpec:
    lowest, highest = job.nodes
    # Asking the network for our own name may take seconds, or fail.
    address = job.interface[1] if job.interface else "localhost" if highest == 1 else None
    endpoint = job.endpoint
    fixed = job.node_rank is not None
    handler = get_rendezvous_handler(
        RendezvousParameters(
            backend="static" if fixed else "c10d",
            endpoint="{}:{}".format(*(endpoint or ("localhost", 0))),
            run_id=(job.rdzv_id or "headrace") if endpoint else uuid.uuid4().hex,
            min_nodes=lowest,
            max_nodes=highest,
            local_addr=address,
            timeout=_RENDEZVOUS_SECONDS,
            **({"rank": job.node_rank} if fixed else {}),
        )
    )
    place = "${local_rank}" if job.numa_aware else "-"
    command = [*map(_literal, bound_to(os.getpid(), signal.SIGKILL)), place, *map(_literal, job.program)]
    return WorkerSpec(
        role="default",
        local_world_size=job.local_instances,
        entrypoint=command[0],
        args=tuple(command[1:]),
        rdzv_handler=handler,
        max_restarts=job.max_restarts,
        monitor_interval=0.1,
        master_addr=endpoint[0] if fixed and endpoint else None,
        master_port=endpoint[1] if fixed and endpoint else None,
        local_addr=address,
    )


def _literal(text: str) -> str:
    return text.replace("$", "$$")


class RankPipes(LogsSpecs):
    """Where torch sends what ranks write: into pipes that the OutputReader reads."""

    def __init__(self, job: Job, reader: OutputReader) -> None:
        super().__init__(log_dir=os.devnull)
        self._job = job
        self._reader = reader
        self._writing: list[int] = []
        self._extra = dict.fromkeys(env.INTERFACES, job.interface[0]) if job.interface else {}

    @property
    def root_log_dir(self) -> str:
        return os.devnull

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        self.close()
        self._reader.drain()  # of the attempt before: torch has ended it
        paths: dict[str, dict[int, str]] = {"stdout": {}, "stderr": {}}
        for local_rank, variables in envs.items():
            rank, ranks = int(variables[env.RANK]), int(variables[env.RANKS])
            variables |= self._extra | self._job.variables(rank, ranks, env.current())
            variables[env.ERROR_FILE] = ""
            for name, files in paths.items():
                writing = self._reader.stream(rank, name)
                self._writing.append(writing)
                files[local_rank] = f"/dev/fd/{writing}"
            if self._job.verbose:
                listed = " ".join(f"{key}={value}" for key, value in sorted(variables.items()))
                self._reader.output.say(f"headrace: rank {rank}: {listed} {' '.join(self._job.program)}")
        return LogsDest(stdouts=paths["stdout"], stderrs=paths["stderr"], error_files=dict.fromkeys(envs, os.devnull))

    def close(self) -> None:
        """Close the writing ends of this process, once the ranks have theirs."""
        while self._writing:
            os.close(self._writing.pop())


class Agent(LocalElasticAgent):
    """torch's agent; it also reports which rank failed first, and ends the children of ranks that have failed."""

    def __init__(self, spec: WorkerSpec, pipes: RankPipes, job: Job, reader: OutputReader) -> None:
        super().__init__(spec=spec, logs_specs=pipes)
        self.code = 1
        self._pipes = pipes
        self._job = job
        self._reader = reader
        self.started: list[int] = []

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        pids: dict[int, int] = super()._start_workers(worker_group)
        self._pipes.close()
        self.started += pids.values()
        self._reader.watch({worker_group.workers[local].global_rank: pid for local, pid in pids.items()})
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.is_failed():  # torch has ended all others by now
            end_sessions(self.started)
            self.started.clear()
            self._reader.drain()
            self._report(result.failures)
        return result

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        try:
            super()._shutdown(death_sig, timeout)
        except SignalException:  # a second Ctrl-C: no more patience
            end_sessions(self.started)
            raise

    def _report(self, failures: dict[int, ProcessFailure]) -> None:
        order = [*self._reader.ended, *failures]
        rank = next(rank for rank in order if rank in failures)
        code = failures[rank].exitcode
        self.code = code if code > 0 else 128 - code
        ended_by_us = {0, -signal.SIGTERM, -signal.SIGKILL}
        for other, failure in failures.items():
            if other == rank or failure.exitcode not in ended_by_us:
                self._reader.output.show_hidden(other)
        self._reader.output.drop_hidden()
        how = f"failed with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
        then = "the others were ended"
        if self._remaining_restarts:
            done = self._job.max_restarts - self._remaining_restarts
            then = f"all ranks are started again ({done + 1} of {self._job.max_restarts})"
        self._reader.output.say(f"headrace: rank {rank} {how}; {then}")
