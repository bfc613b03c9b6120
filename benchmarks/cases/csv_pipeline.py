"""The tutorial's CSV pipeline: open, parse, shuffle, divide, map, batch; two files, batches of 8.

The side-by-side with torchdata 0.9.0 needs that package and `--subjects headrace,torchdata`; without it the rows of
Headrace stand alone, and the table says so.
"""

import csv
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks.case import Case, Effort, Epochs, Figures, Subject, Target
from benchmarks.subjects.torchdata_loader import installed
from benchmarks.timing import timed

SIZE = 8
ROWS = 50_000
WORKERS = 2
INSTALLED = installed()
AGAINST = ("headrace", "torchdata")
ALONE = (
    Target("CSV pipeline, 2 workers", "2 workers", "rows/s", at_least=60_000),
    Target(f"the same, in process{'' if INSTALLED else ' (torchdata 0.9.0: not installed)'}", "in process", "rows/s"),
)
SIDE_BY_SIDE = (
    Target("against torchdata 0.9.0, 2 workers", "2 workers", "rows/s", AGAINST, at_least=5),
    Target("against torchdata 0.9.0, in process", "in process", "rows/s", AGAINST),
)
CASE = Case(
    name="csv_pipeline",
    question="How many rows a second, of two CSV files of 50,000 rows, in batches of 8?",
    targets=ALONE + SIDE_BY_SIDE if INSTALLED else ALONE,
    subjects=AGAINST if INSTALLED else ("headrace",),
)


class Graphs(Protocol):
    """A subject that runs graphs of DataPipes."""

    def csv(self, paths: Sequence[str], parse: Any, *, size: int, workers: int) -> AbstractContextManager[Epochs]: ...


def parse(row: list[str]) -> tuple[int, float, str]:
    return int(row[0]), float(row[1]), row[2]


def measure(subject: Subject, effort: Effort) -> Figures:
    graphs = cast(Graphs, subject)
    rows = SIZE * WORKERS * effort.count(ROWS // (SIZE * WORKERS))  # workers that batch for themselves end full too
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="headrace-csv-") as folder:
        paths = [write(Path(folder, f"train{number}.csv"), number, rows) for number in (1, 2)]
        for figure, workers in (("2 workers", WORKERS), ("in process", 0)):
            with graphs.csv(paths, parse, size=SIZE, workers=workers) as loader:
                took = timed(loader, lambda batch: batch[0][0], batches=2 * rows // SIZE, effort=effort)
            found[figure] = SIZE * took.rate
    return found


def write(path: Path, number: int, rows: int) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([number * 1_000_000 + i, i / 7, f"a text, number {i}"] for i in range(rows))
    return str(path)
