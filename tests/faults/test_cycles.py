"""Start, read a little, leave, again and again: nothing grows."""

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process import fork_server
from tests.depth import depth
from tests.laws.pipes import Numbers, odd
from tests.leaks import DEADLINE

KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "inline": ({}, depth(30, 2000)),
    "thread": ({"workers": 2, "kind": "thread"}, depth(30, 2000)),
    "fork": ({"workers": 1, "start_method": "fork"}, depth(10, 2000)),
    "server": ({"workers": 1, "start_method": "server"}, depth(10, 2000)),
    "forkserver": ({"workers": 1, "start_method": "forkserver"}, depth(2, 200)),
    "spawn": ({"workers": 1, "start_method": "spawn"}, depth(2, 200)),
}


def leave_by_close(loader: Loader[Any]) -> None:
    next(iter(loader))
    loader.close()


def leave_by_break(loader: Loader[Any]) -> None:
    for _ in loader:
        break


def leave_at_the_end(loader: Loader[Any]) -> None:
    with loader:
        assert sum(len(batch) for batch in loader) == 30


def never_read(loader: Loader[Any]) -> None:
    iter(loader)


LEAVES = [leave_by_close, leave_by_break, leave_at_the_end, never_read]


def grown() -> dict[str, int]:
    """What this process and its server hold, apart from descriptors, which `no_new_fds` counts."""
    with open("/proc/self/maps") as maps:
        slots = sum("memfd:headrace" in line for line in maps)
    found = {"maps of slots": slots, "threads": threading.active_count(), "tasks": len(os.listdir("/proc/self/task"))}
    server = fork_server.COMMON.now
    if server is not None and server.alive():
        found["descriptors of the server"] = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        found["children of the server"] = len(psutil.Process(server.process.pid).children())
    found["children"] = len(psutil.Process().children())
    return found


def assert_not_grown(before: dict[str, int]) -> None:
    """(A thread that was joined is a task of the kernel for a moment more, now or when it was counted `before`.)"""
    until = time.monotonic() + DEADLINE
    while (more := _more(before)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not more


def _more(before: dict[str, int]) -> dict[str, int]:
    return {what: count for what, count in grown().items() if count > before.get(what, 0)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", depth(["inline", "thread", "fork", "server"], list(KINDS)))
def test_nothing_grows_over_many_loaders(kind: str, no_new_fds: Callable[[], None]) -> None:
    how, count = KINDS[kind]
    # Two stages, so that samples lie in slots.
    pipe = Pipe.of(Numbers(60)).filter(odd).batch(4)
    for leave in LEAVES[: min(count, 4)]:  # the first ones fill caches, and start the server
        leave(Loader(pipe, timeout=30, **how))
    gc.collect()
    no_new_fds()
    before = grown()
    for i in range(count):
        LEAVES[i % 4](Loader(pipe, timeout=30, **how))
    gc.collect()
    assert_not_grown(before)


@pytest.mark.parametrize("kind", ["thread", "fork", "server"])
def test_nothing_grows_over_many_epochs_of_one_loader(kind: str, no_new_fds: Callable[[], None]) -> None:
    with Loader(Pipe.of(Numbers(60)).filter(odd).batch(4), timeout=30, **KINDS[kind][0]) as loader:
        for _ in range(20):
            leave_by_break(loader)
        list(loader)
        gc.collect()
        before, pids = grown(), loader.worker_pids()
        no_new_fds()
        for _ in range(depth(100, 1000)):
            leave_by_break(loader)
        list(loader)
        gc.collect()
        before["maps of slots"] += 40  # those that were not needed yet; a leak would be one for each epoch
        assert_not_grown(before)
        assert loader.worker_pids() == pids
        no_new_fds()
