"""Order as arithmetic: the shuffled order of 10^12 samples, without a table of them."""

import time
import tracemalloc

from benchmarks.case import Case, Effort, Figures, Subject, Target

N = 10**12
FEW = 10**6
COUNT = 10**6
JUST_ABOVE = 2**40 + 1  # the dearest n for a bijection on powers of two that walks until it falls inside
CASE = Case(
    name="order",
    question="How long do 10^6 indices of a shuffled 10^12 take, and does memory depend on n?",
    targets=(
        Target("10^6 indices at n = 10^12", "seconds", "s", at_most=0.3, less=True),
        Target("10^6 indices at n = 2^40 + 1", "seconds just above a power", "s", less=True),
        Target("peak memory at n = 10^12, of that at n = 10^6", "memory", "%", at_most=150, ranked=False),
    ),
    subjects=("headrace",),
)


def measure(subject: Subject, effort: Effort) -> Figures:
    indices(N, 1)  # imports
    return {
        "seconds": seconds(N),
        "seconds just above a power": seconds(JUST_ABOVE),
        "memory": 100 * peak(N) / peak(FEW),
    }


def seconds(n: int) -> float:
    began = time.perf_counter()
    indices(n, COUNT)
    return time.perf_counter() - began


def peak(n: int) -> int:
    tracemalloc.start()
    indices(n, COUNT)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def indices(n: int, count: int) -> None:
    import numpy as np

    from headrace.plan.order import Shuffled

    found = Shuffled(n, key=7)(np.arange(count, dtype=np.int64))
    if len(found) != count or found.min() < 0 or found.max() >= n:
        raise AssertionError(f"an order of {n} gave an index outside it")
