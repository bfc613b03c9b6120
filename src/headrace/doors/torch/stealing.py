"""WorkStealing: whether anybody may make the next batch, or only the worker that torch would give it to.

The consumer's side of `watch`. The first batches of an epoch go to their own workers; when one of each has left nothing
behind, whoever is free takes the next. As soon as one has left something behind, or would, everything that anybody
could take and that is not delivered is made again by the workers that it belongs to, and so is all from then on.
"""

from collections.abc import Callable

from headrace.doors.torch.indices import Indices
from headrace.doors.torch.scan import PlainContainer
from headrace.doors.torch.side_effects import StealRefused, WithSideEffects
from headrace.doors.torch.state import number_of
from headrace.engine.places import RunPlace

ADVICE = (
    "batches leave something behind in their workers (they draw random numbers, or ask which worker they are in), so "
    "batch k waits for worker k mod num_workers as in torch, and slow samples hold the others up; "
    "DataLoader(..., reproducible=True) lets whoever is free take the next batch"
)


class StealingHistory:
    """What is known of a DataLoader's batches, over all its iterators."""

    def __init__(self) -> None:
        self.side_effects = False
        """One has left something behind: from now on each is made by the worker that it belongs to."""
        self.plain: dict[int, PlainContainer] = {}
        """Containers that the dataset was found to hold when it was surveyed."""


class WorkStealing:
    """Who may make the batches of one epoch."""

    def __init__(self, evidence: StealingHistory, indices: Indices, workers: int) -> None:
        self._stealing_history = evidence
        self._indices = indices
        self._unproven = workers
        """Batches that have to come, each from its own worker, and to leave nothing behind."""
        self._free: int | None = None
        """The first batch that anybody could take."""
        indices.pinned = True

    def must_redo(self, kind: type, place: Callable[[], RunPlace]) -> bool:
        """Something of this type came, or was raised; True if it, and all behind it, has to be made once more.

        `place` tells where the epoch is behind it.
        """
        evidence = self._stealing_history
        if kind is WithSideEffects or kind is StealRefused:
            evidence.side_effects = True
        elif self._unproven and not evidence.side_effects:
            # What an error has left behind in its own worker nobody tells.
            evidence.side_effects = issubclass(kind, BaseException)
            self._unproven -= 1
            if not self._unproven:
                self._indices.pinned, self._free = False, self._indices.given
        if self._free is None or not evidence.side_effects:
            return False
        if (number := number_of(place())) is None or number < self._free:
            return False  # (What is given out until then is anybody's, so that no owner makes it twice.)
        self._indices.pinned, self._free = True, None
        return True
