"""One process prepares (downloads, unpacks, builds an index), the others wait and then find it ready.

    with first(world, per="host") as mine:
        data = download("...")         # on one process of each machine first, then on all others

The body runs on every process: on one alone, and on the others after it has succeeded. `mine` is True on that one.
When it raises or dies, even by SIGKILL, the next one that waits takes its place: `mine` is then True there.
All ranks must pass the same calls in the same order, as with collectives.

How they wait:
* per="host", and per="job" with a `directory` that all machines share: an exclusive lock on one file (lockf, not flock:
  children that the holder has forked do not keep it), which the kernel gives back when its holder dies. The file lists
  who has passed. A list is believed only while one of those in it lives and as long as we are not in it ourselves, so
  what a dead job has left does no harm; at worst a step is prepared once more. The last one removes the file.
* per="job" without one: rank 0 is first, the others wait for its word in torch's store. A raised error reaches them at
  once; a rank 0 that dies is noticed when the launcher ends the job or the store closes, at last after `timeout`.
"""

import fcntl
import hashlib
import json
import os
import socket
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, HeadraceError, WorkerStuck
from headrace.plan.world import RankStore, World
from headrace.ranks import env
from headrace.ranks.counter import default_store, master_store
from headrace.sources.lock import open_locked

_calls: Counter[tuple[str, str]] = Counter()


@contextmanager
def first(
    world: World,
    per: str = "host",
    *,
    timeout: float = 1800.0,
    directory: str | os.PathLike[str] | None = None,
    name: str = "",
) -> Iterator[bool]:
    """True on the process that prepares. `name` tells apart what runs in different order on different ranks."""
    if per not in ("host", "job"):
        raise BadOption(f"first(per={per!r}): write 'host' or 'job'")
    number = _calls[per, name]
    _calls[per, name] += 1
    if world.ranks == 1:
        yield True
        return
    key = f"{env.job()} {per} {name} {number}"
    if directory is None and per == "job" and world.nodes > 1:
        with _by_store(world, key, timeout) as is_first:
            yield is_first
        return
    folder = _private() if directory is None else Path(directory)
    members = world.ranks if per == "job" else world.local_ranks
    # the program is part of the name: two programs of one user may have the same default port and nothing else to tell
    digest = hashlib.blake2b(f"{key} {os.getcwd()} {sys.argv[:1]}".encode(), digest_size=12).hexdigest()
    with _by_lock(folder / f"headrace-first-{digest}", world.rank, members, timeout) as is_first:
        yield is_first


def _private() -> Path:
    """A directory that is ours alone: in a shared one, others could hold our locks."""
    path = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise HeadraceError(f"{path} is not a directory of ours alone; remove it, or set TMPDIR to another place")
    return path


@contextmanager
def _by_lock(path: Path, rank: int, members: int, timeout: float) -> Iterator[bool]:
    fd = _locked(path, timeout)
    try:
        passed = _passed(fd)
        if str(rank) in passed or not any(_lives(*who) for who in passed.values()):
            passed = {}
        is_first = not passed
        if is_first:
            yield True
        passed[str(rank)] = _myself()
        os.ftruncate(fd, 0)
        if len(passed) >= members:
            path.unlink()
        else:
            os.pwrite(fd, json.dumps(passed).encode(), 0)
    finally:
        os.close(fd)  # gives the lock back
    if not is_first:
        yield False


def _locked(path: Path, timeout: float) -> int:
    """The file, open and locked."""
    try:
        return open_locked(str(path), timeout, fcntl.lockf, 0o600)
    except TimeoutError:
        raise WorkerStuck(
            f"waited {timeout:g} s for the process that holds {path}; see what it does, or give a longer timeout"
        ) from None


def _passed(fd: int) -> dict[str, Any]:
    text = os.pread(fd, os.fstat(fd).st_size, 0)
    return dict(json.loads(text)) if text else {}


def _myself() -> list[Any]:
    return [socket.gethostname(), os.getpid(), _born(os.getpid())]


def _lives(host: str, pid: int, born: str) -> bool:
    return host != socket.gethostname() or _born(pid) == born


def _born(pid: int) -> str:
    """When the process was started, so that another process with its number is noticed; "" when it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return ""
    return "running"


@contextmanager
def _by_store(world: World, key: str, timeout: float) -> Iterator[bool]:
    store = _store(timeout)
    key = f"headrace/first/{key}"
    if world.rank == 0:
        try:
            yield True
        except BaseException as error:
            store.set(key, f"{type(error).__name__}: {error}")
            raise
        store.set(key, "")
        return
    try:
        store.wait([key], timedelta(seconds=timeout))
        word = store.get(key).decode()
    except RuntimeError as error:  # what all of torch's store errors are
        raise WorkerStuck(f"rank 0 gave no word within {timeout:g} s, or its store has gone: {error}") from None
    if word:
        raise HeadraceError(f"rank 0 failed while all others waited for it: {word}")
    yield False


def _store(timeout: float) -> RankStore:
    if (store := default_store()) is not None:
        return store
    if env.current().get(env.AGENT_STORE) == "True":
        return master_store(timeout)
    raise BadOption(
        "first(per='job') on several machines: call it after torch.distributed.init_process_group, "
        "or give a directory that all machines share: first(world, per='job', directory=...)"
    )
