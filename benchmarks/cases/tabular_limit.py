"""A frame of 100 numeric columns: how near to what memory allows, and is it the same from every kind of frame?

The limit is `np.take` of the same rows from the same columns in this process, times the two workers. Forked workers
gather from the very columns; to others the frame goes as rows in shared memory, which is faster to gather from.
"""

import time
from typing import Any

import numpy as np

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.cases.tabular import ROWS, WORKERS
from benchmarks.tables import SIZE, Columns, columns, rate

SOURCES = ("dict", "pandas", "polars", "arrow")
TURNS = 5
CASE = Case(
    name="tabular_limit",
    question="Which part of the gather limit is kept, and how much slower is the slowest kind of frame?",
    targets=(
        Target("100 columns, forked: of the gather limit", "of the limit", "%", at_least=60),
        Target("100 columns, not forked: of the gather limit", "of the limit, clean", "%", at_least=60),
        Target("slowest of dict, pandas, polars, pyarrow: of the fastest", "slowest source", "%", at_least=80),
    ),
    subjects=("headrace",),
    needs="columns",
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    data = columns(effort.count(ROWS, least=20 * SIZE))
    seconds = effort.seconds
    found = dict.fromkeys(SOURCES, 0.0)
    most = limit(data, seconds) * WORKERS
    # The best of several turns each: a machine that is slower for a moment says nothing about a kind of frame.
    for source in SOURCES * TURNS:
        with subject.columns(as_source(data, source), size=SIZE, workers=WORKERS, whole=True) as loader:
            found[source] = max(found[source], rate(loader, 2 * seconds / TURNS))
    with subject.columns(data, size=SIZE, workers=WORKERS, whole=True, start="clean") as loader:
        clean = rate(loader, seconds)
    most = (most + limit(data, seconds) * WORKERS) / 2
    return {
        "rows/s, clean": clean,
        "of the limit": 100 * found["dict"] / most,
        "of the limit, clean": 100 * clean / most,
        "slowest source": 100 * min(found.values()) / max(found.values()),
        **{f"rows/s from {source}": value for source, value in found.items()},
    }


def limit(data: Columns, seconds: float) -> float:
    """Rows a second that `np.take` gathers in one process."""
    order = np.random.default_rng(6).permutation(len(data["key"]))
    count = 0
    began = time.perf_counter()
    for start in range(0, len(order) - SIZE, SIZE):
        rows = order[start : start + SIZE]
        _ = [np.take(values, rows) for values in data.values()]
        count += 1
        if time.perf_counter() - began > seconds:
            break
    return count * SIZE / (time.perf_counter() - began)


def as_source(data: Columns, kind: str) -> Any:
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(data)
    if kind == "polars":
        import polars

        return polars.DataFrame(data)
    if kind == "arrow":
        import pyarrow

        return pyarrow.table(data)
    return data
