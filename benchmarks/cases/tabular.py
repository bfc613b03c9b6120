"""A frame of 100 numeric columns, shuffled as a whole: rows a second, beside torch row by row and batch by batch."""

from benchmarks.case import FASTER, Case, Effort, Figures, Subject, Target
from benchmarks.tables import SIZE, columns, rate

ROWS = 2_000_000
WORKERS = 2
CASE = Case(
    name="tabular",
    question="How many rows a second of 100 numeric columns x 2 million rows, batches of 1024, shuffled, 2 workers?",
    targets=(
        Target("100 columns, beside a data set of rows", "rows/s by rows", "rows/s", FASTER, at_least=20),
        Target("100 columns, beside `__getitems__`", "rows/s by batches", "rows/s", FASTER, at_least=3),
    ),
    needs="columns",
    why={"ray": "Ray shuffles inside a buffer of 100,000 rows; Headrace draws from a permutation of all rows."},
    deadline=300.0,
)


def measure(subject: Subject, effort: Effort) -> Figures:
    data = columns(effort.count(ROWS, least=20 * SIZE))
    found = {}
    for name, whole in (("rows/s by rows", False), ("rows/s by batches", True)):
        with subject.columns(data, size=SIZE, workers=WORKERS, whole=whole) as loader:
            found[name] = rate(loader, effort.seconds)
    return found
