"""What a test left behind: processes, threads and named shared memory that were not there before it.

    before = look()
    ...                      the test
    left(before)             {"processes": [...], "threads": [...], "memory": [...]}, only what is really left

`left` costs about a millisecond when there is nothing. When there is something, it collects garbage, then waits for
processes and threads to end, up to one deadline for all of them.

An orphan counts too: a process whose parent died moves away from our tree, but stays in our process group.
"""

import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import psutil

KINDS = ("processes", "threads", "memory")
DEADLINE = 5.0
SHM = Path("/dev/shm")

# Helper processes that rightly live as long as their interpreter, one of each: (module, where their pid is in it).
LONG_LIVED = (
    ("multiprocessing.resource_tracker", "_resource_tracker._pid"),
    ("multiprocessing.forkserver", "_forkserver._forkserver_pid"),
    ("headrace.engine.workers.process.fork_server", "COMMON.now.process.pid"),
    ("tests.warm", "Server.now.process.pid"),
)


@dataclass(frozen=True)
class Before:
    processes: frozenset[psutil.Process]
    threads: frozenset[threading.Thread]
    memory: frozenset[str]


def look() -> Before:
    return Before(frozenset(_processes()), frozenset(threading.enumerate()), frozenset(_memory()))


def left(before: Before, deadline: float = DEADLINE) -> dict[str, list[str]]:
    """Everything left, described; left processes are killed so that the next test starts clean."""
    if not (_new_processes(before) or _new_threads(before) or _memory() - before.memory):
        return {}
    gc.collect()
    end = time.monotonic() + deadline
    _, alive = psutil.wait_procs(_new_processes(before), timeout=deadline)
    processes = [describe(process) for process in alive]
    kill(alive)
    threads = []
    for thread in _new_threads(before):
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            threads.append(repr(thread))
    found = {"processes": processes, "threads": threads, "memory": _new_memory(before, end)}
    return {kind: things for kind, things in found.items() if things}


def describe(process: psutil.Process) -> str:
    try:
        with process.oneshot():
            return f"{process.pid} {process.status()} {' '.join(process.cmdline()) or process.name()}"
    except psutil.Error as error:
        return f"{process.pid} ({error})"


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(processes, timeout=DEADLINE)


def descriptors() -> Counter[str]:
    """How many descriptors of each kind this process holds (Linux; elsewhere nothing is counted)."""
    kinds: Counter[str] = Counter()
    folder = Path("/proc/self/fd")
    for entry in os.listdir(folder) if folder.exists() else ():
        try:
            target = os.readlink(folder / entry)
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        for kind in ("socket:", "/memfd:", "pidfd", "eventpoll", "eventfd", "pipe:"):
            if kind in target:
                kinds[kind.strip("/:")] += 1
    return kinds


def in_session(session: int) -> list[psutil.Process]:
    """The living processes of one session: it is inherited by children and survives the death of their parents."""
    return _where(lambda pid: os.getsid(pid) == session)


def _processes() -> set[psutil.Process]:
    long_lived = {_pid(*place) for place in LONG_LIVED}
    group, me = os.getpgrp(), os.getpid()
    members = _where(lambda pid: pid != me and os.getpgid(pid) == group)
    pids = {process.pid for process in members} | {me}
    orphans = [process for process in members if _parent(process) not in pids]
    found = {*_children(me), *orphans}
    return {process for process in found if process.pid not in long_lived}


def _children(pid: int) -> list[psutil.Process]:
    """All that the process and its children have started."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        # The kernel's own list, where it keeps one: psutil reads the parent of every process of the machine instead.
        below = [int(child) for task in os.listdir(tasks) for child in (tasks / task / "children").read_text().split()]
    except OSError:
        try:
            return psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
    found = []
    for child in below:
        try:
            found.append(psutil.Process(child))
        except psutil.NoSuchProcess:
            continue
        found += _children(child)
    return found


def _where(wanted: Callable[[int], bool]) -> list[psutil.Process]:
    found = []
    for pid in psutil.pids():
        try:
            if wanted(pid):
                found.append(psutil.Process(pid))
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def _parent(process: psutil.Process) -> int | None:
    try:
        parent: int = process.ppid()
    except psutil.NoSuchProcess:
        return None
    return parent


def _pid(module: str, path: str) -> int | None:
    if module not in sys.modules:
        return None
    try:
        pid: int | None = attrgetter(path)(sys.modules[module])
    except AttributeError:  # not started
        return None
    return pid


def _new_processes(before: Before) -> list[psutil.Process]:
    return list(_processes() - before.processes)


def _new_threads(before: Before) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t not in before.threads and not t.daemon]


def _memory() -> set[str]:
    return set(os.listdir(SHM)) if SHM.exists() else set()


def _new_memory(before: Before, end: float) -> list[str]:
    """Names in /dev/shm that stay and that no process outside our tree uses.

    Other programs on the machine make names there too, and for a moment nobody holds them (in transit between two
    processes, or until a tracker unlinks them). A name does not tell whose it is, but a leak is what does not go away.
    """
    names = _memory() - before.memory
    while names := {name for name in names if _is_ours(SHM / name)}:
        if time.monotonic() >= end:
            break
        threading.Event().wait(0.05)  # a folder has no event to wait for in the standard library
    return sorted(names)


def _is_ours(path: Path) -> bool:
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return False
    ours = {os.getpid(), *(process.pid for process in _processes())}
    return not any(_uses(pid, inode) for pid in set(psutil.pids()) - ours)


def _uses(pid: int, inode: int) -> bool:
    # By inode: the maker of a semaphore has it mapped under a temporary name that is long gone.
    folder = Path("/proc") / str(pid)
    try:
        for line in (folder / "maps").read_text().splitlines():
            if str(SHM) in line and line.split()[4] == str(inode):
                return True
        return any(_is_inode(entry, inode) for entry in (folder / "fd").iterdir())
    except OSError:
        return False


def _is_inode(descriptor: Path, inode: int) -> bool:
    try:
        return os.readlink(descriptor).startswith(f"{SHM}/") and descriptor.stat().st_ino == inode
    except OSError:  # closed meanwhile
        return False
