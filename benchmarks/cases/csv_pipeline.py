"""The tutorial's CSV pipeline: open, parse, shuffle, divide, map, batch; two files, batches of 8."""

import tempfile
from pathlib import Path

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.graphs import parse, write_csv
from benchmarks.timing import timed

SIZE = 8
ROWS = 50_000
WORKERS = 2
AGAINST = ("headrace", "datapipes")
CASE = Case(
    name="csv_pipeline",
    question="How many rows a second, of two CSV files of 50,000 rows, in batches of 8, by a graph of DataPipes?",
    targets=(
        Target("CSV pipeline, 2 workers", "2 workers", "rows/s", at_least=60_000),
        Target("CSV pipeline, 2 workers, beside torchdata 0.9", "2 workers", "rows/s", AGAINST, at_least=5),
        Target("CSV pipeline, in process, beside torchdata 0.9", "in process", "rows/s", AGAINST),
    ),
    subjects=AGAINST,
    needs="graph",
    deadline=180.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    rows = SIZE * WORKERS * effort.count(ROWS // (SIZE * WORKERS))  # workers that batch for themselves end full too
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="headrace-csv-") as folder:
        paths = [write_csv(Path(folder, f"train{number}.csv"), number, rows) for number in (1, 2)]
        for figure, workers in (("2 workers", WORKERS), ("in process", 0)):
            with subject.graph("csv", paths, parse, size=SIZE, workers=workers) as loader:
                took = timed(loader, lambda batch: batch[0][0], batches=2 * rows // SIZE, effort=effort)
            found[figure] = SIZE * took.rate
    return found
