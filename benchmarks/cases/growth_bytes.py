"""What larger batches cost: from 1 kB to 100 MB, brought over by two workers, and read once by the consumer."""

from benchmarks import growth
from benchmarks.case import Effort, Figures, Subject
from headrace import Pipe

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8)
CASE = growth.case("growth_bytes", "What do batches of 1 kB to 100 MB cost, with 2 workers?", SIZES)


def measure(subject: Subject, effort: Effort) -> Figures:
    found: Figures = {}
    for size in (SIZES[0], *SIZES):  # the first twice: imports
        pipe = Pipe.of(growth.Blocks(10**6, size // 4)).shuffle().batch(4).collate()
        found |= growth.named(size, growth.point(pipe, effort, workers=2))
    return found
