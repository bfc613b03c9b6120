"""What runs inside a Ray cluster: the actor around a worker, the watcher, and a look at a stuck actor.

Ray sends these by value, because they are made inside functions: a process of the cluster needs to find headrace only
after it was told where the consumer found it. So nothing here may use a name of this module.
"""

from typing import Any


def actor() -> type:
    """The actor that runs tickets."""

    class HeadraceWorker:
        def __init__(self, path: list[str]) -> None:
            import sys

            sys.path.extend(entry for entry in path if entry not in sys.path)
            import ray

            from headrace.engine.workers.ray.worker import RayWorker

            def report(watcher: Any, seq: int, position: int, packing: bool) -> None:
                try:
                    ray.get(watcher.note.remote(seq, position, packing))
                except ray.exceptions.RayActorError:
                    pass  # then nobody will be blamed

            self.worker = RayWorker(report)
            self.node = str(ray.get_runtime_context().get_node_id())

        def start(self, shipped: Any, number: int) -> Any:
            return self.worker.start(shipped, number), self.node

        def deliver(self, tickets: Any, lent: Any, *packs: Any) -> Any:
            return self.worker.deliver(tickets, packs, lent)

        def keep(self, ticket: Any, *packs: Any) -> Any:
            return self.worker.keep(ticket, packs)

        def remake(self, ticket: Any, count: int) -> Any:
            return self.worker.remake(ticket, count)

    return HeadraceWorker


def watcher() -> type:
    """An actor that remembers where others were when they died."""

    class HeadraceWatcher:
        def __init__(self) -> None:
            self.told: dict[int, tuple[int, bool]] = {}

        def note(self, seq: int, position: int, packing: bool) -> None:
            self.told[seq] = (position, packing)

        def last(self, seq: int) -> tuple[int, bool] | None:
            return self.told.get(seq)

    return HeadraceWatcher


def stack_reader() -> Any:
    """A task that runs beside an actor and reads its stack."""

    def headrace_stack(path: list[str], pid: int, dump: int) -> str:
        import os
        import sys

        sys.path.extend(entry for entry in path if entry not in sys.path)
        from headrace.engine.workers.process.stacks import stack_of

        pidfd = os.pidfd_open(pid)
        file = os.open(f"/proc/{pid}/fd/{dump}", os.O_RDONLY)
        try:
            return stack_of(pidfd, file)
        finally:
            os.close(pidfd)
            os.close(file)

    return headrace_stack
