"""FullSync by vote: all ranks of a job stop after the same number of samples, though each reads a stream of its own.

Each rank reads a few samples ahead, and the ranks vote on how many all of them have; the first vote that is short is
the last. A rank whose stream fails delivers what it had read, then raises; the others end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.errors import WorkerStuck
from headrace.op import Here, Op
from headrace.ops.shape.same import FullSync
from headrace.pipe.graph import Pipe, rebuilt
from headrace.plan.world import World
from headrace.ranks.agree import Agreement

SAMPLES_PER_VOTE = 8
"""How many samples a rank reads before each vote."""


class PrefetchTimeoutError(WorkerStuck):
    """Another rank did not vote in time."""

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"Fail to fetch data within {timeout} seconds: every rank must read as far as the others; "
            "give fullsync(timeout=) more time where that is what it takes"
        )


@dataclass(frozen=True, slots=True)
class FullSyncVote(Op[Any, Any]):
    """`fullsync()` at work; it runs where the training loop runs."""

    timeout: float = 1800
    consumer = True
    verb = "fullsync"

    def flow(self, samples: Iterator[Any], here: Here) -> Iterator[Any]:
        try:
            agreement = Agreement.of(World.detect(), self.timeout)
        except RuntimeError as lost:
            raise PrefetchTimeoutError(self.timeout) from lost
        return samples if agreement is None else self._voted(samples, agreement, here)

    def _voted(self, samples: Iterator[Any], agreement: Agreement, here: Here) -> Iterator[Any]:
        error: Exception | None = None
        try:
            while True:
                here.rest()
                ready: list[Any] = []
                try:
                    ready.extend(islice(samples, SAMPLES_PER_VOTE))
                except Exception as failed:
                    error = failed
                try:
                    steps = min(row[0] for row in agreement.rows([len(ready)]))
                except RuntimeError as lost:
                    if error is not None:
                        raise error from error.__cause__
                    raise PrefetchTimeoutError(self.timeout) from lost
                yield from ready[:steps]
                if error is not None and steps == len(ready):
                    raise error from error.__cause__
                if steps < SAMPLES_PER_VOTE:
                    return
        finally:
            error = None
            agreement.close()

    def identity(self) -> tuple[Any, ...]:
        return ("fullsync",)


def with_votes(pipe: Pipe[Any]) -> Pipe[Any]:
    """The graph, in which ranks vote at every fullsync."""

    def make(node: Pipe[Any], below: list[Pipe[Any]]) -> Pipe[Any]:
        return Pipe(FullSyncVote(node.op.timeout) if isinstance(node.op, FullSync) else node.op, *below)

    return rebuilt(pipe, make)[id(pipe)]
