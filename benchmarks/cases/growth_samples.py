"""What more samples cost: a shuffled `range` of 10^3 to 10^12 numbers, which stands for a data set of that length.

No data set of that length is read: the order is arithmetic, and it, the start, the snapshot and a resume in the middle
are what could depend on the length. Without workers, so that nothing else is in the figures.
"""

import json
import time
import tracemalloc

from benchmarks import growth
from benchmarks.case import Effort, Figures, Subject
from headrace import Loader, Pipe

SIZES = (10**3, 10**6, 10**9, 10**12)
CASE = growth.case("growth_samples", "What do 10^3 to 10^12 shuffled samples cost, by simulation?", SIZES)


def measure(subject: Subject, effort: Effort) -> Figures:
    found: Figures = {}
    for size in (SIZES[0], *SIZES):  # the first twice: imports
        found |= growth.named(size, costs(size))
    return found


def costs(size: int) -> Figures:
    batches, batch = 12, 64
    pipe = Pipe.of(range(size)).shuffle().batch(batch)
    tracemalloc.start()
    with Loader(pipe, seed=1) as loader:
        running = iter(loader)
        for _ in range(batches):
            next(running)
        state = loader.state_dict()
        _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    state["at"]["place"]["position"] = size // 2  # half an epoch later
    with Loader(pipe, seed=1) as loader:
        loader.load_state_dict(state)
        began = time.thread_time()  # nothing else works on it: what other programs take does not count
        running = iter(loader)
        next(running)
        start = time.thread_time() - began
        thread = time.thread_time()
        for _ in range(min(batches, size // 2 // batch - 1)):
            next(running)
        spent = (time.thread_time() - thread) / min(batches, size // 2 // batch - 1)
        snapshot = len(json.dumps(loader.state_dict()))
    return {
        "consumer us": 1e6 * spent,
        "memory MB": most / 1e6,
        "start ms": 1e3 * start,
        "snapshot bytes": float(snapshot),
    }
