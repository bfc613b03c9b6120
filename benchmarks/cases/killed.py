"""A worker is killed in the middle of an epoch: does everything still arrive, and how long is the pause?

The samples carry the process that made them, so that the case can kill one that works for the loader. `delivered`
counts different samples; `pause` is the longest wait for a batch afterwards, or the wait until an error came.
"""

import os
import signal
import sys
import time
import traceback

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.data import Stamped

SIZE = 8
WORKERS = 2
PATIENCE = 10
CASE = Case(
    name="killed",
    question="One of 2 workers is killed (SIGKILL) in the middle of an epoch: what arrives, after which pause?",
    targets=(
        Target("a worker is killed: delivered", "delivered", "%", at_least=100),
        Target("a worker is killed: pause", "pause", "s", less=True, ranked=False),
    ),
    deadline=45.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    batches = effort.count(200, least=40)
    dataset = Stamped(batches * SIZE, seconds=0.001)
    seen: list[int] = []
    pause, killed = 0.0, False
    signal.signal(signal.SIGALRM, too_long)
    try:
        with subject.batches(dataset, size=SIZE, workers=WORKERS) as loader:
            last = time.perf_counter()
            signal.alarm(2 * PATIENCE)
            try:
                for number, (indices, pids) in enumerate(loader):
                    if killed:
                        pause = max(pause, time.perf_counter() - last)
                    seen += indices.tolist()
                    if not killed and number >= batches // 4:
                        kill(int(pids[0]))
                        killed = True
                    last = time.perf_counter()
                    signal.alarm(PATIENCE)
            except (Exception, TooLong):
                pause = max(pause, time.perf_counter() - last)
                raise
            finally:
                signal.alarm(PATIENCE)  # to close it
        signal.alarm(0)
    except (Exception, TooLong):  # the end of that loader's epoch, and an answer to the question
        signal.alarm(0)
        if not killed:
            raise
        traceback.print_exc(file=sys.stderr)
    if len(set(seen)) != len(seen):
        raise AssertionError(f"{len(seen) - len(set(seen))} samples came twice")
    return {"delivered": 100 * len(seen) / len(dataset), "pause": pause}


class TooLong(BaseException):
    """Not an Exception: loaders wait in loops that go on after those."""


def kill(pid: int) -> None:
    if pid == os.getpid():
        raise AssertionError("the loader works in this process: there is nobody to kill")
    os.kill(pid, signal.SIGKILL)


def too_long(*_: object) -> None:
    raise TooLong(f"no batch, and no end, for {PATIENCE} s")
