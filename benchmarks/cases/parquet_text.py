"""Parquet with a column of text, shuffled, beside the same table with numbers of as many bytes in its place.

Both tables take turns in one process, because the speed of a core changes from second to second. Rows have a number and
a text of 200 to 400 letters; in the other table, a list of 75 numbers of 4 bytes. Default options, two workers.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case, Effort, Figures, Subject, Target
from headrace import Loader, Pipe

ROWS, SIZE, GROUP = 400_000, 256, 5_000
CASE = Case(
    name="parquet_text",
    question="How many shuffled rows a second from Parquet with a column of text, of those with numbers in its place?",
    targets=(
        Target("Parquet with text, in memory after the first epoch", "rows/s", "rows/s"),
        Target("the same, of the rate with numbers", "of numbers", "%", at_least=70),
        Target("the same, bytes read in the first epoch, of the file", "read", "times", at_most=1.1, less=True),
    ),
    subjects=("headrace",),
    needs="parquet",
    deadline=600.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    rows = effort.count(ROWS, least=20_000)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        paths = {name: write(Path(folder) / f"{name}.parquet", name, rows) for name in ("text", "numbers")}
        loaders = {name: Loader(Pipe.parquet(path).shuffle().batch(SIZE), workers=2) for name, path in paths.items()}
        seconds = dict.fromkeys(paths, 0.0)
        try:
            for loader in loaders.values():
                epoch(loader, rows)  # workers start, and row groups are read
            read = loaders["text"].stats().reads.bytes
            epochs = 0
            while seconds["text"] < effort.seconds or not epochs:
                for name, loader in loaders.items():
                    seconds[name] += epoch(loader, rows)
                epochs += 1
        finally:
            for loader in loaders.values():
                loader.close()
        size = Path(paths["text"]).stat().st_size
    return {
        "rows/s": epochs * rows / seconds["text"],
        "of numbers": 100 * seconds["numbers"] / seconds["text"],
        "read": read / size,
    }


def write(path: Path, kind: str, rows: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(4)
    if kind == "text":
        letters = bytes(rng.integers(97, 123, 4096, dtype=np.uint8)).decode()
        starts, sizes = rng.integers(0, 3600, rows).tolist(), rng.integers(200, 401, rows).tolist()
        column = pa.array([letters[at : at + size] for at, size in zip(starts, sizes, strict=True)])
    else:
        column = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 75, dtype=np.float32)), 75)
    pq.write_table(pa.table({"key": np.arange(rows), "value": column}), path, row_group_size=GROUP, compression="none")
    return str(path)


def epoch(loader: Any, rows: int) -> float:
    seen = np.zeros(rows, bool)
    began = time.perf_counter()
    for batch in loader:
        seen[np.asarray(batch["key"])] = True
    seconds = time.perf_counter() - began
    if not seen.all():
        raise AssertionError(f"{rows - seen.sum()} rows never came")
    return seconds
