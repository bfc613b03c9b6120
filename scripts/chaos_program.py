"""Chaos: trouble at random moments; the stream must be the same, once, in time, and nothing may be left.

Every run takes a pipe (indexed or streamed), a way to start workers and a number of workers, all drawn from the seed.
Most events are kills of workers, by a timer of the run. Recovery is the time from a kill to the next sign of life of
the worker's replacement (it is ready for work). The others, one in four, are drawn from

    a stopped worker or fork server (SIGSTOP)                   the stream goes on
    a signal to a consumer, or to its whole process group       no process and no file is left but its autosave
    a full disk while autosave writes                           no batch is lost, and the last whole file loads

Run it through scripts/chaos.
"""

import argparse
import contextlib
import gc
import hashlib
import json
import logging
import os
import random
import resource
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Autosave, Loader, Pipe
from headrace.engine.workers.deaths import STREAM_DEATHS, running_ticket
from headrace.engine.workers.process.fork_server import COMMON
from headrace.engine.workers.process.workers import ProcessWorkers, WorkerProcess
from headrace.errors import PoisonSample

METHODS = ("fork", "server")
DEADLINE = 120.0
"""Seconds for one run; more is a hang."""
SAMPLE_SECONDS = 0.0002
SAMPLES = 2000


class Numbers:
    """A map-style dataset whose samples take a moment, so that a kill finds workers at work."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        time.sleep(SAMPLE_SECONDS)
        return index


def stream(size: int) -> Callable[[], Iterator[int]]:
    return lambda: iter(range(size))


def picture(x: int) -> Any:
    """Plain numpy.random: a sample that is made twice must not come out different."""
    return np.random.randint(0, 256, 3000, dtype=np.uint8) + np.uint8(x % 7)


def slow_picture(x: int) -> Any:
    time.sleep(SAMPLE_SECONDS)
    return picture(x)


def third(x: int) -> bool:
    return x % 3 != 0


PIPES: dict[str, Callable[[int], Pipe[Any]]] = {
    "indexed": lambda n: Pipe.of(Numbers(n)).shuffle().map(picture).batch(8).collate(),
    "filtered": lambda n: Pipe.of(Numbers(n)).shuffle().filter(third).map(picture).batch(8).collate(),
    "streamed": lambda n: Pipe.of(stream(n)).shuffle(window=50).sharding_filter().map(slow_picture).batch(8).collate(),
    "reservoir": lambda n: (
        Pipe.of(stream(n)).shuffle(buffer_size=50).sharding_filter().filter(third).map(slow_picture).batch(8)
    ),
}


@dataclass
class Figures:
    runs: int = 0
    kills: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """Events of other kinds."""
    recoveries: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    coincidences: int = 0
    """Two of our own kills at the same sample: by contract that sample is poison, and the run ends with its name."""


def digest(batches: Any) -> list[str]:
    """One hash per batch, so that a difference can be placed."""
    out = []
    for batch in batches:
        h = hashlib.blake2b(digest_size=8)
        for part in batch if isinstance(batch, list) else [batch]:
            h.update(np.ascontiguousarray(part).tobytes())
        out.append(h.hexdigest())
    return out


# --- the killer -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Killer:
    """Kills workers of one loader from the training loop's side, between and inside batches, by an interval timer.

    The timer's signal handler runs in the consumer at any moment of its loop, also while it waits.
    """

    def __init__(self, loader: Loader[Any], chance: random.Random, most: int, pause: tuple[float, float]) -> None:
        self.loader = loader
        self.chance = chance
        self.most = most
        self.pause = pause
        self.kills = 0
        self.victims: dict[int, float] = {}
        """When a worker of this number was killed, until its successor is ready."""
        self.dead: set[int] = set()
        self.recoveries: list[float] = []
        self.hits: Counter[tuple[object, ...]] = Counter()
        """How many kills found a worker at this sample, or in this block of a stream."""

    def workers(self) -> list[Any]:
        sets = [workers for workers in self.loader._pool.all() if isinstance(workers, ProcessWorkers)]
        return [worker for workers in sets for worker in workers._workers]

    def __enter__(self) -> "Killer":
        self._before = signal.signal(signal.SIGALRM, self.ring)
        self._again()
        return self

    def __exit__(self, *_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _again(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(*self.pause))

    def ring(self, *_: Any) -> None:
        self.look()
        alive = [w for w in self.workers() if w.started.sock.fileno() >= 0 and w.started.pid not in self.dead]
        if alive and self.kills < self.most:
            worker = self.chance.choice(alive)
            with contextlib.suppress(ProcessLookupError), pidfd(worker.started.pid) as process:
                signal.pidfd_send_signal(process, signal.SIGKILL)
                self.kills += 1
                self.dead.add(worker.started.pid)
                self.victims.setdefault(worker.number, time.perf_counter())
                self._note(worker, process)
        if self.kills < self.most:
            self._again()

    def _note(self, worker: WorkerProcess, process: int) -> None:
        """Where a worker was that is killed, once it has ended."""
        select.select([process], [], [], DEADLINE)
        tickets = [ticket for ticket in worker.queue.values() if ticket.slot is not None]  # (the others are answered)
        if (found := running_ticket(tickets)) is not None:
            ticket, at = found
            # A block of a stream, a batch in the hands of one op, or else a sample.
            sample = None if ticket.strand is not None or at.packing or at.grouped else at.position
            self.hits[ticket.strand, ticket.stage, ticket.epoch, ticket.number, sample] += 1

    def poisoned(self) -> bool:
        """Our own kills have found the same sample, or the same block of a stream, as often as poison takes."""
        return any(hits > (1 if strand is None else STREAM_DEATHS) for (strand, *_), hits in self.hits.items())

    def look(self) -> None:
        """Which victims have a successor that is ready."""
        for worker in self.workers():
            victim = self.victims.get(worker.number)
            if victim is not None and worker.started.pid not in self.dead and worker.ready:
                self.recoveries.append(time.perf_counter() - victim)
                del self.victims[worker.number]


def run(name: str, method: Any, workers: int, size: int, kills: int, seed: int, figures: Figures) -> None:
    chance = random.Random(seed)
    told = f"{name}, {method} x {workers}, seed {seed}"
    pipe = PIPES[name](size)
    with Loader(pipe, seed=seed) as alone:
        want = digest(alone)
    got: list[str] = []
    loader = Loader(pipe, seed=seed, workers=workers, start_method=method, timeout=DEADLINE, restarts=10**6)
    killer = Killer(loader, chance, kills, (0.01, 0.12))
    started = time.monotonic()
    try:
        with loader, killer:
            while killer.kills < kills:
                loader.set_epoch(0)
                got = []
                for batch in loader:
                    got += digest([batch])
                    killer.look()
                if got != want:
                    place = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), -1)
                    figures.violations.append(f"{told}: batch {place} differs ({len(got)} of {len(want)} batches)")
                    break
                if time.monotonic() - started > DEADLINE:
                    figures.violations.append(f"{told}: not done within {DEADLINE:.0f} s")
                    break
    except PoisonSample as error:
        figures.coincidences += 1
        if not killer.poisoned():
            figures.violations.append(f"{told}: no sample was hit twice, and yet: {error}")
    except Exception as error:
        figures.violations.append(f"{told}: {type(error).__name__}: {error}")
    figures.runs += 1
    figures.kills += killer.kills
    figures.recoveries += killer.recoveries


# --- other kinds of trouble -------------------------------------------------------------------------------------------


def undisturbed(name: str, seed: int) -> list[str]:
    with Loader(PIPES[name](SAMPLES), seed=seed) as alone:
        return digest(alone)


def halfway(loader: Loader[Any], chance: random.Random, event: Callable[[], None]) -> list[str]:
    """An epoch, with an event somewhere in it."""
    got: list[str] = []
    moment = chance.randrange(1, 60)
    for batch in loader:
        got += digest([batch])
        if len(got) == moment:
            event()
    return got


def stopped_worker(name: str, method: Any, workers: int, seed: int, chance: random.Random) -> str | None:
    how: dict[str, Any] = {"workers": workers, "start_method": method, "timeout": 4.0, "on_stuck": "replace"}
    with Loader(PIPES[name](SAMPLES), seed=seed, restarts=10**6, **how) as loader:
        got = halfway(loader, chance, lambda: os.kill(chance.choice(loader.worker_pids()), signal.SIGSTOP))
    return None if got == undisturbed(name, seed) else "the stream differs"


def stopped_fork_server(name: str, method: Any, workers: int, seed: int, chance: random.Random) -> str | None:
    with Loader(PIPES[name](SAMPLES), seed=seed, workers=workers, start_method="server", timeout=DEADLINE) as loader:

        def stop() -> None:
            assert COMMON.now is not None
            os.kill(COMMON.now.process.pid, signal.SIGSTOP)
            os.kill(chance.choice(loader.worker_pids()), signal.SIGKILL)

        got = halfway(loader, chance, stop)
    return None if got == undisturbed(name, seed) else "the stream differs"


def full_disk(name: str, method: Any, workers: int, seed: int, chance: random.Random) -> str | None:
    """No file may grow for a while, again and again."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "autosave.json")
        got: list[str] = []
        try:
            with Loader(PIPES[name](SAMPLES), seed=seed, autosave=Autosave(path, every=2)) as loader:
                for batch in loader:
                    got += digest([batch])
                    room = 0 if chance.random() < 0.3 else limits[0]
                    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
                    if len(got) == 150 and chance.random() < 0.5:
                        break
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        want = undisturbed(name, seed)
        if got != want[: len(got)]:
            return "the stream differs"
        with Loader(PIPES[name](SAMPLES), seed=seed, autosave=path) as again:
            rest = digest(again) if again.epoch == 0 else []
        if rest and rest != want[len(want) - len(rest) :]:
            return "what autosave has kept is not a place of the stream"
        left = [found for found in os.listdir(folder) if found != "autosave.json"]
    return f"left in the folder: {left}" if left else None


def signalled(name: str, method: Any, workers: int, seed: int, chance: random.Random) -> str | None:
    """A consumer in a session of its own gets a signal, alone or with all its processes."""
    folder = tempfile.mkdtemp()
    read, write = os.pipe()
    copy = os.fork()
    if copy == 0:
        try:
            os.setsid()
            os.close(read)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            signal.signal(signal.SIGINT, signal.default_int_handler)
            how: Any = {"workers": workers, "start_method": method}
            save = os.path.join(folder, "autosave.json")
            with Loader(PIPES[name](SAMPLES), seed=seed, autosave=Autosave(save, every=1), **how) as loader:
                for number, _ in enumerate(loader):
                    if number == 1:
                        os.write(write, b"x")
                    time.sleep(0.005)
        finally:
            os._exit(1)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    time.sleep(chance.random() * 0.1)
    sent = chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL))
    (os.kill if chance.random() < 0.5 else os.killpg)(copy, sent)
    os.waitpid(copy, 0)
    until = time.monotonic() + 10.0
    while (left := in_session(copy)) and time.monotonic() < until:
        time.sleep(0.02)
    with Loader(PIPES[name](SAMPLES), seed=seed, autosave=os.path.join(folder, "autosave.json")) as again:
        next(iter(again), None)  # (The epoch may have come to its end before the signal.)
    files = [found for found in os.listdir(folder) if found != "autosave.json"]  # the next start sweeps
    shutil.rmtree(folder)
    if left or files:
        return f"left after {sent.name}: processes {left}, files {files}"
    return None


def in_session(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z" and int(fields[3]) == session:
                found.append(int(entry.name))
    return found


OTHERS = (stopped_worker, stopped_fork_server, full_disk, signalled)


def other(number: int, plan: tuple[str, Any, int], seed: int, figures: Figures) -> None:
    """One event of another kind."""
    kind, (name, method, workers) = OTHERS[number % len(OTHERS)], plan
    told = f"{kind.__name__}: {name}, {method} x {workers}, seed {seed}"
    try:
        wrong = kind(name, method, workers, seed, random.Random(seed))
    except Exception as error:  # (PoisonSample too: one event cannot hit a sample twice)
        wrong = f"{type(error).__name__}: {error}"
    if wrong:
        figures.violations.append(f"{told}: {wrong}")
    figures.others[kind.__name__] += 1


# --- what is left -----------------------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """Living descendants of this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {os.getpid(), *found}} - found:
        found |= more
    return found


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def consumer_killed(name: str, method: Any, workers: int, seed: int, figures: Figures) -> float:
    """A consumer of its own is killed in the middle; how long until nothing of it is left."""
    read, write = os.pipe()
    copy = os.fork()
    if copy == 0:
        try:
            os.close(read)
            loader = Loader(PIPES[name](SAMPLES), seed=seed, workers=workers, start_method=method)
            batches = iter(loader)
            next(batches)
            os.write(write, " ".join(map(str, loader.worker_pids())).encode())
            for _ in batches:
                time.sleep(0.01)
        finally:
            os._exit(1)
    os.close(write)
    pids = [int(pid) for pid in os.read(read, 4096).split()]
    os.close(read)
    ends = [os.pidfd_open(pid) for pid in pids]
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    started = time.monotonic()
    for pid, end in zip(pids, ends, strict=True):
        if not select.select([end], [], [], max(0.0, started + 2.0 - time.monotonic()))[0]:
            figures.leaks.append(f"worker {pid} outlived its consumer ({name}, {method} x {workers})")
            signal.pidfd_send_signal(end, signal.SIGKILL)
        os.close(end)
    return time.monotonic() - started


def chaos(kills: int, runs: int, seed: int, say: Callable[[str], None]) -> Figures:
    """`kills` events over at least `runs` runs: three in four are kills of workers."""
    figures = Figures()
    chance = random.Random(seed)
    plans = [(name, method, workers) for name in PIPES for method in METHODS for workers in (1, 2, 3, 4)]
    chance.shuffle(plans)
    for method in METHODS:  # what lives as long as the process (the server, caches) is there before anything is counted
        with Loader(Pipe.of(list(range(4))), workers=1, start_method=method) as loader:  # type: ignore[arg-type]
            list(loader)
    before = children(), descriptors(), shared_memory()
    others = kills // 4
    for number in range(others):
        other(number, plans[number % len(plans)], seed * 1_000_003 + 500_000 + number, figures)
        if figures.violations:
            break
    say(f"{others} events of other kinds than kills of workers, {len(figures.violations)} violations")
    kills -= others
    each = -(-kills // runs)
    number = 0
    while figures.kills < kills and number < 4 * runs and not figures.violations:
        name, method, workers = plans[number % len(plans)]
        run(name, method, workers, SAMPLES, each, seed * 1_000_003 + number, figures)
        number += 1
        if number % 10 == 0:
            say(f"{figures.runs:>4} runs  {figures.kills:>5} kills  {len(figures.violations)} violations")
        if figures.violations:
            break
    slowest = 0.0
    for name, method, workers in plans[: max(4, runs // 5)]:
        slowest = max(slowest, consumer_killed(name, method, workers, seed, figures))
    say(f"killed consumers: everything of theirs was gone after {slowest:.2f} s at the most")
    until = time.monotonic() + 2.0
    server = {COMMON.now.process.pid} if COMMON.now is not None else set()
    while (left := children() - before[0] - server) and time.monotonic() < until:
        time.sleep(0.02)
    figures.leaks += [f"process {pid}" for pid in left]
    gc.collect()
    if descriptors() > before[1]:
        figures.leaks.append(f"{descriptors() - before[1]} descriptors")
    figures.leaks += [f"/dev/shm/{name}" for name in shared_memory() - before[2] if name.startswith("headrace")]
    return figures


def beside(programs: int, kills: int, runs: int, seed: int) -> Figures:
    """The figures of several programs, each with its part of the events and moments of its own."""
    total = Figures()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number in range(programs):
            path = os.path.join(folder, str(number))
            part, rounds = (-(-(many - number) // programs) for many in (kills, max(runs, programs)))
            words = ["--kills", part, "--runs", rounds, "--seed", seed * programs + number, "--figures", path]
            started.append((subprocess.Popen([sys.executable, __file__, *map(str, words)]), path))
        for process, path in started:
            if process.wait() != 0:
                total.violations.append(f"a program of its own ended with {process.returncode}; see above")
                continue
            figures = Figures(**json.loads(Path(path).read_text()))
            for name, value in vars(figures).items():
                if name == "others":
                    total.others.update(value)
                else:
                    setattr(total, name, getattr(total, name) + value)
    return total


def report(figures: Figures) -> None:
    times = sorted(figures.recoveries)
    print(f"runs        {figures.runs}")
    print(f"kills       {figures.kills}, {figures.coincidences} times two of them at the same sample")
    for kind, count in sorted(figures.others.items()):
        print(f"{count:>11} {kind.replace('_', ' ')}")
    if times:
        print(f"recoveries  {len(times)}, median {statistics.median(times):.3f} s, worst {times[-1]:.3f} s")
    print(f"violations  {len(figures.violations)}")
    for told in figures.violations:
        print(f"    {told}")
    print(f"leaks       {len(figures.leaks)}")
    for told in figures.leaks:
        print(f"    {told}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=int, default=4, help="programs that run beside each other: much is waiting")
    parser.add_argument("--figures", help="write them to this file, as JSON (for programs that run beside each other)")
    options = parser.parse_args()
    logging.getLogger("headrace").setLevel(logging.ERROR)  # a thousand deaths are told once, at the end
    if options.figures:
        figures = chaos(options.kills, options.runs, options.seed, print)
        Path(options.figures).write_text(json.dumps(vars(figures)))
        return 0
    figures = beside(options.beside, options.kills, options.runs, options.seed)
    report(figures)
    return 1 if figures.violations or figures.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
