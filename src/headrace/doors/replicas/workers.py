"""What user code finds around it in a worker, as in a worker of torch's: `get_worker_info()`, and its `worker_init_fn`.

A data set with random access is read by all workers, and each has its own number. An iterable one is read by a single
worker, whichever that is: to its code that one is number 0 of 1, so that a data set, or a `worker_init_fn`, that takes
its worker's part takes everything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.doors.torch.crew import Crew, Setup


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """Called in each worker, with its number, before its first sample."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    init_fn: Callable[[int], None] | None
    seed: int
    workers: int
    stream: bool

    def __call__(self, number: int) -> None:
        number, workers = (0, 1) if self.stream else (number, self.workers)
        crew = Crew(self.dataset, self.collate_fn or list, self.init_fn, self.seed, workers)
        Setup(crew)(number)
