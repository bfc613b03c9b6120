"""What runs inside a Ray cluster: the actor around a worker, the watcher, and the task that reads an actor's stack.

Ray sends these by value, because they are made inside functions: a process of the cluster can find headrace only after
it was sent the import path of the consumer. So nothing here may use a name of this module.
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
                    pass  # the watcher is lost: a death cannot be blamed on a sample then

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
    """An actor that remembers which position each ticket has reported last, also after its worker has died."""

    class HeadraceWatcher:
        def __init__(self) -> None:
            self.reported: dict[int, tuple[int, bool]] = {}

        def note(self, seq: int, position: int, packing: bool) -> None:
            self.reported[seq] = (position, packing)

        def last(self, seq: int) -> tuple[int, bool] | None:
            return self.reported.get(seq)

    return HeadraceWatcher


def stack_reader() -> Any:
    """A task that runs on the node of an actor and reads its stack."""

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
