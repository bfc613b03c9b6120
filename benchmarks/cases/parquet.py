"""Parquet ten times as large as the memory for it: shuffled rows a second, beside Ray Data and HF datasets.

    headrace   a permutation of all rows, with few row groups open (`shuffle(quality=)`), two threads
    ray        blocks in random order, and a buffer of as many rows as fit (`iter_batches(local_shuffle_buffer_size=)`)
    hf         files in random order, and a buffer of as many rows (`streaming=True`, `shuffle(buffer_size=)`)

Each row must come once; the memory is what all processes of the
subject have for themselves beyond what they had before the first batch.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.machine import private_memory
from benchmarks.tables import parquet_files

ROWS = 2_500_000
COUNT = 100
SIZE = 1024
CASE = Case(
    name="parquet",
    question="How many shuffled rows a second from Parquet files 10 times as large as the memory, each row once?",
    targets=(
        Target("Parquet 10x the memory, beside Ray Data", "rows/s", "rows/s", ("headrace", "ray")),
        Target("Parquet 10x the memory, beside HF streaming", "rows/s", "rows/s", ("headrace", "hf")),
        Target("Parquet 10x the memory: memory used, of the budget", "memory", "%", at_most=120, less=True),
    ),
    subjects=("headrace", "release02", "ray", "hf"),
    needs="parquet",
    deadline=600.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    rows = effort.count(ROWS, least=40_000)
    budget = rows * COUNT * 4 // 10
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        paths = parquet_files(Path(folder), rows)
        with subject.parquet(paths, size=SIZE, memory=budget, rows=budget // (COUNT * 4)) as loader:
            before, most = private_memory(), 0
            seen = np.zeros(rows, bool)
            began = time.perf_counter()
            for number, batch in enumerate(loader):
                seen[np.asarray(batch["key"])] = True
                if number % 32 == 0:
                    most = max(most, private_memory())
            seconds = time.perf_counter() - began
    if not seen.all():
        raise AssertionError(f"{rows - seen.sum()} rows never came")
    return {"rows/s": rows / seconds, "memory": 100 * max(1, most - before) / budget}
