"""Freedom: whether anybody may make the next batch, or only the worker that torch would give it to.

The consumer's side of `watch`. The first batches of a loader go to their own workers; when one of each has left nothing
behind, whoever is free takes the next. As soon as one would leave something behind, all that is not delivered is made
again by the workers that it belongs to, and so is everything from then on.
"""

from headrace.doors.torch.indices import Indices
from headrace.doors.torch.watch import Carried, ForOwner

ADVICE = (
    "batches leave something behind in their workers (they draw random numbers, or ask which worker they are in), so "
    "batch k waits for worker k mod num_workers as in torch, and slow samples hold the others up; "
    "DataLoader(..., reproducible=True) lets whoever is free take the next batch"
)


class Evidence:
    """What the batches of a DataLoader have shown so far, over all its iterators."""

    def __init__(self) -> None:
        self.clean = False
        """One of each worker has left nothing behind."""
        self.carries = False
        """One has: from now on each is made by the worker that it belongs to."""


class Freedom:
    """Who may make the batches of one epoch."""

    def __init__(self, evidence: Evidence, indices: Indices, workers: int) -> None:
        self._evidence = evidence
        self._indices = indices
        self._workers = workers
        self._proofs = 0
        """Batches that have come, each from its own worker, and have left nothing behind."""
        self._give(free=evidence.clean and not evidence.carries)

    def _give(self, *, free: bool) -> None:
        self._indices.free, self._indices.pins = free, not free

    def hear(self, kind: type) -> bool:
        """Something of this type came; True if it, and all behind it, has to be made once more."""
        evidence = self._evidence
        if kind is Carried or kind is ForOwner:
            evidence.carries = True
        elif not evidence.clean and not evidence.carries:
            self._proofs += 1
            if self._proofs == self._workers:
                evidence.clean = True
                self._give(free=True)
        if kind is ForOwner:
            self._give(free=False)
        return kind is ForOwner
