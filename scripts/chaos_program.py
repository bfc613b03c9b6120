"""Chaos: SIGKILL at random moments; the stream must be the same, once, in time, and nothing may be left.

Every run takes a pipe (indexed or streamed), a way to start workers and a number of workers, all drawn from the seed.
A process of its own kills workers of the run at random moments. Recovery is the time from a kill to the next sign of
life of the worker's replacement (it is ready for work). Run it through scripts/chaos.
"""

import argparse
import gc
import hashlib
import logging
import os
import random
import select
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Loader, Pipe
from headrace.engine.workers.process.workers import ProcessWorkers
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
    return np.random.randint(0, 256, 3000, np.uint8) + np.uint8(x % 7)


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
            try:
                os.kill(worker.started.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            else:
                self.kills += 1
                self.dead.add(worker.started.pid)
                self.victims.setdefault(worker.number, time.perf_counter())
        if self.kills < self.most:
            self._again()

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
    except PoisonSample:
        figures.coincidences += 1
    except Exception as error:
        figures.violations.append(f"{told}: {type(error).__name__}: {error}")
    figures.runs += 1
    figures.kills += killer.kills
    figures.recoveries += killer.recoveries


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
    """`kills` kills over at least `runs` runs."""
    figures = Figures()
    chance = random.Random(seed)
    plans = [(name, method, workers) for name in PIPES for method in METHODS for workers in (1, 2, 3, 4)]
    chance.shuffle(plans)
    for method in METHODS:  # what lives as long as the process (the server, caches) is there before anything is counted
        with Loader(Pipe.of(list(range(4))), workers=1, start_method=method) as loader:  # type: ignore[arg-type]
            list(loader)
    before = children(), descriptors(), shared_memory()
    each = -(-kills // runs)
    number = 0
    while figures.kills < kills and number < 4 * runs:
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
    while (left := children() - before[0]) and time.monotonic() < until:
        time.sleep(0.02)
    figures.leaks += [f"process {pid}" for pid in left]
    gc.collect()
    if figures.coincidences > 2 + kills // 100:
        figures.violations.append(f"{figures.coincidences} runs ended with a poison sample: too many for chance")
    if descriptors() > before[1]:
        figures.leaks.append(f"{descriptors() - before[1]} descriptors")
    figures.leaks += [f"/dev/shm/{name}" for name in shared_memory() - before[2] if name.startswith("headrace")]
    return figures


def report(figures: Figures) -> None:
    times = sorted(figures.recoveries)
    print(f"runs        {figures.runs}")
    print(f"kills       {figures.kills}, {figures.coincidences} times two of them at the same sample")
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
    options = parser.parse_args()
    logging.getLogger("headrace").setLevel(logging.ERROR)  # a thousand deaths are told once, at the end
    figures = chaos(options.kills, options.runs, options.seed, print)
    report(figures)
    return 1 if figures.violations or figures.leaks else 0


if __name__ == "__main__":
    sys.exit(main())
