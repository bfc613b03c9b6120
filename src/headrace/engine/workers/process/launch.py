"""Launch: starts worker processes for one program, by the start method of the policy."""

import logging
import os

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.workers.process import start
from headrace.engine.workers.process.fork_server import COMMON, ForkServers, Join
from headrace.engine.workers.process.handles import Handles
from headrace.memory.arena import allocate

log = logging.getLogger("headrace")


class WorkerLauncher:
    """Starts workers. The program is packed once for all of them."""

    def __init__(self, program: Program, policy: Policy) -> None:
        self._program = program
        self._extra = {
            "worker_init": policy.worker_init, "recycle": policy.recycle, "recycle_memory": policy.recycle_memory
        }  # fmt: skip
        method = policy.start_method or "server"
        self._forks = method == "fork"
        self._shipped = -1
        self._servers: ForkServers | None = None
        self._handles = Handles()
        if self._forks:
            _warn_of_threads()
            for node in program.pipe.nodes():
                node.op.settle()
            return
        from headrace.engine.wire.shipping import ship

        if method != "spawn":
            self._servers = COMMON if method == "server" else ForkServers()
            self._servers.begin()
        with self._handles:
            data, modules = ship(program, self._extra, self._handles.reducers)
        self._modules = modules if method == "server" else []
        self._shipped = allocate(len(data))
        with open(self._shipped, "wb", closefd=False) as file:
            file.write(data)

    def start(self, number: int, join: Join, open_here: list[int]) -> None:
        """Start worker `number` and hand it to `join`; a forked one closes the descriptors `open_here`."""
        if self._servers is not None:
            try:
                self._servers.start(number, self._shipped, self._modules, self._handles, join)
                return
            except (RuntimeError, OSError) as refused:
                log.info("worker %d starts as a new interpreter: %s", number, refused)
        with start.signals_held():
            if self._forks:
                join(number, start.by_fork(number, self._program, self._extra, open_here))
            else:
                join(number, start.by_spawn(number, self._shipped, self._handles))

    def close(self) -> None:
        self._handles.close()
        if self._shipped >= 0:
            os.close(self._shipped)
            self._shipped = -1
        if self._servers is not None and self._servers is not COMMON:
            self._servers.close()


def _warn_of_threads() -> None:
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        log.info("fork in a process with %d threads: a lock that one of them holds stays locked in the worker", threads)
