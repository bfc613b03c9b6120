"""JPEG: when decoding is the work, does the loader leave both cores to it?

Beside the loader, in the same process and minute, run one core's rate (decoding in a bare loop) and the rate of two
bare processes with no loader: two cores that share a cache or a pipeline give less than twice one, and no loader can
give more.
"""

import multiprocessing
import time
from multiprocessing.connection import Connection

from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.data import Jpegs
from benchmarks.timing import timed

SIZE = 32
CASE = Case(
    name="jpeg",
    question="How many JPEG images a second, and which share of twice one core's rate?",
    targets=(
        Target("JPEG decode", "images/s", "images/s", FASTER, at_least=1.0),
        Target("JPEG decode: share of twice one core's rate", "share of two cores", "%", at_least=85, ranked=False),
        Target("two bare processes: share of twice one core's rate", "bare share", "%", ranked=False),
    ),
    door=True,
    why={"*": "Decoding is nearly all of the work here: loaders that keep both cores busy are alike."},
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(50)
    dataset = Jpegs(batches * SIZE)
    before = one_core(dataset, effort.seconds / 2)
    bare = two_processes(dataset, effort.seconds / 2)
    with subject.batches(dataset, size=SIZE, workers=2) as loader:
        rate = SIZE * timed(loader, lambda batch: batch[0, 0, 0, 0], batches=batches, effort=effort).rate
    one = (before + one_core(dataset, effort.seconds / 2)) / 2  # before and after: the machine may have slowed down
    return {
        "images/s": rate,
        "one core images/s": one,
        "share of two cores": 100 * rate / (2 * one),
        "bare share": 100 * bare / (2 * one),
    }


def one_core(dataset: Jpegs, seconds: float) -> float:
    count = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds or count == 0:
        dataset[count]
        count += 1
    return count / took


def two_processes(dataset: Jpegs, seconds: float) -> float:
    fork = multiprocessing.get_context("fork")
    rates: list[Connection] = []
    processes = []
    for _ in range(2):
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_send_rate, args=(theirs, dataset, seconds))
        process.start()
        theirs.close()
        rates.append(ours)
        processes.append(process)
    total = sum(float(rate.recv()) for rate in rates)
    for process in processes:
        process.join()
    return total


def _send_rate(to: Connection, dataset: Jpegs, seconds: float) -> None:
    to.send(one_core(dataset, seconds))
