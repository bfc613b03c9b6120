"""What each further worker costs: batches of 1 MB that are made without work."""

from benchmarks import growth
from benchmarks.case import Effort, Figures, Subject
from headrace import Pipe

SIZES = (1, 2, 3, 4, 6, 8)
CASE = growth.case("growth_workers", "What do 1 to 8 workers cost, with batches of 1 MB that are made at once?", SIZES)


def measure(subject: Subject, effort: Effort) -> Figures:
    pipe = Pipe.of(growth.Blocks(10**6, 2**16)).shuffle().batch(16).collate()
    growth.point(pipe, effort, workers=1)  # imports
    found: Figures = {}
    for workers in SIZES:
        found |= growth.named(workers, growth.point(pipe, effort, least=100, workers=workers))
    return found
