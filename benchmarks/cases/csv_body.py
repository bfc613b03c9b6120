"""The CSV pipeline with 50 us of work a row: from where on do workers pay?

Headrace beside itself: the same graph with two workers and in process, in the same minute.
"""

import tempfile
from pathlib import Path
from statistics import fmean

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.cases.csv_pipeline import AGAINST, SIZE, WORKERS
from benchmarks.graphs import parse_and_work, write_csv
from benchmarks.timing import timed

ROWS = 10_000
CASE = Case(
    name="csv_body",
    question="With a body of 50 us a row, how much faster is the CSV pipeline with 2 workers than in process?",
    targets=(
        Target("CSV with 50 us a row: 2 workers, of in process", "of in process", "x", at_least=1.5, ranked=False),
        Target("CSV with 50 us a row, 2 workers, beside torchdata 0.9", "2 workers", "rows/s", AGAINST),
    ),
    subjects=AGAINST,
    needs="graph",
    deadline=180.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    rows = SIZE * WORKERS * effort.count(ROWS // (SIZE * WORKERS))
    rates: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-csv-") as folder:
        paths = [write_csv(Path(folder, f"train{number}.csv"), number, rows) for number in (1, 2)]
        for workers in (0, WORKERS, 0):  # before and after: the machine may have slowed down
            with subject.graph("csv", paths, parse_and_work, size=SIZE, workers=workers) as loader:
                took = timed(loader, lambda batch: batch[0][0], batches=2 * rows // SIZE, effort=effort)
            rates.setdefault(workers, []).append(SIZE * took.rate)
    (divided,), alone = rates[WORKERS], fmean(rates[0])
    return {"2 workers": divided, "in process": alone, "of in process": divided / alone}
