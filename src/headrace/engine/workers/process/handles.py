"""Handles: shared objects of multiprocessing, and shared tensors, sent to a worker without copying their memory.

A lock travels by its name, a value, an array, a queue or a tensor after `share_memory_()` by a descriptor, a manager's
proxy by an address. multiprocessing pickles them only for a process that it is starting itself: while a program is
packed, `Handles` pretends to be that process, and keeps the descriptors. They are sent to each worker before it opens
the program.

A forked worker needs none of this, but must reset multiprocessing's state as multiprocessing's own children do.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Handle:
    """One descriptor, in a pickled program: its index among those that were sent."""

    number: int

    def detach(self) -> int:
        """A copy of the descriptor, in the worker; the caller closes it."""
        return os.dup(_received[self.number])


class Handles:
    """`with handles:` around pickling; then `fds` go to every worker that is started."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def __enter__(self) -> "Handles":
        from multiprocessing import context

        context.set_spawning_popen(self)  # type: ignore[arg-type]
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        from multiprocessing import context

        context.set_spawning_popen(None)
        if kind is not None:
            self.close()

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    # What `multiprocessing.reduction.DupFd` calls.

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(os.dup(fd))
        return len(self.fds) - 1

    DupFd = Handle

    @property
    def reducers(self) -> Mapping[type, Callable[[Any], Any]]:
        """How multiprocessing pickles its own types, and torch, where it is loaded, its shared memory."""
        from multiprocessing.reduction import ForkingPickler

        known: dict[type, Callable[[Any], Any]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        chosen = {}
        for kind, reduce in known.items():
            if kind.__module__.split(".")[0] != "torch":
                # (Methods and partial functions are in that table too, and travel better by themselves.)
                if kind.__module__ not in ("builtins", "functools"):
                    chosen[kind] = reduce
            elif kind.__name__.endswith("Storage"):
                chosen[kind] = _if_shared(reduce)
        return chosen


def _if_shared(reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Only for storage that is shared already: torch would move every tensor into shared memory, a descriptor each."""

    def reduced(storage: Any) -> Any:
        memory = getattr(storage, "_untyped_storage", storage)
        if memory.device.type == "cpu" and memory.is_shared():
            return reduce(storage)
        return storage.__reduce_ex__(5)

    return reduced


_received: list[int] = []
"""The descriptors that this worker was sent."""


@contextlib.contextmanager
def received(fds: list[int], key: bytes | None) -> Iterator[None]:
    """A context in which the handles of a program can be detached; the descriptors are closed at its end."""
    _received[:] = fds
    if key is not None:
        from multiprocessing import process

        process.current_process().authkey = key
    try:
        yield
    finally:
        while _received:
            os.close(_received.pop())


def authkey() -> bytes | None:
    """The key by which multiprocessing authenticates connections, if this program uses multiprocessing."""
    process = sys.modules.get("multiprocessing.process")
    return None if process is None else bytes(process.current_process().authkey)


def after_fork() -> None:
    """In a forked worker: reset queues, proxies and locks of multiprocessing, as in a child that it has started."""
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if process is not None:
        process._children = set()  # they are the parent's: this process must not wait for them, or end them
    if util is not None:
        util._finalizer_registry.clear()
        util._run_after_forkers()


def before_exit() -> None:
    """Write what was put into queues of multiprocessing, and run its other exit handlers."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._exit_function()
