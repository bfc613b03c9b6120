"""Work stealing: whether any worker may make the next batch, or only the one that torch would give it to.

This is the consumer's side; `side_effects` is that of the workers. Each epoch begins with pinned batches. When every
worker has made one without side effects, the batches that follow may be stolen. As soon as a batch has side effects, or
a worker refuses to steal one because it would, all batches that could be stolen and are not delivered yet are made
again, pinned, and so are all from then on.
"""

from collections.abc import Callable

from headrace.doors.torch.indices import Indices
from headrace.doors.torch.progress import number_of
from headrace.doors.torch.scan import PlainContainer, StateScan
from headrace.doors.torch.side_effects import StealRefused, WithSideEffects
from headrace.engine.places import RunPlace

_ADVICE = (
    "batches leave something behind in their workers (they draw random numbers, or ask which worker they are in), so "
    "batch k waits for worker k mod num_workers as in torch, and slow samples hold the others up; "
    "DataLoader(..., reproducible=True) lets whoever is free take the next batch"
)


class StealingHistory:
    """What a DataLoader has learnt about stealing, over all its iterators."""

    def __init__(self) -> None:
        self.side_effects = False
        """A batch had side effects: from now on each is made by the worker that torch would give it to."""
        self._plain: dict[int, PlainContainer] = {}
        """Long containers of the dataset that were found to hold plain data."""

    @property
    def advice(self) -> str:
        """What to tell the user."""
        return _ADVICE if self.side_effects else ""

    def allows(self, *things: object) -> bool:
        """Whether batches that these things (dataset, collate_fn) make may be stolen."""
        if self.side_effects:
            return False
        scan = StateScan(*things, known=self._plain)
        self._plain = scan.plain
        return scan.safe


class WorkStealing:
    """Which batches of one epoch may be stolen."""

    def __init__(self, history: StealingHistory, indices: Indices, workers: int) -> None:
        self._history = history
        self._indices = indices
        self._unproven = workers
        """Pinned batches that have to come without side effects first, one of each worker."""
        self._first: int | None = None
        """The first batch that could be stolen."""
        indices.pinned = True

    def must_redo(self, kind: type, place: Callable[[], RunPlace]) -> bool:
        """Whether a result or an error of this type, and all behind it, has to be made once more.

        `place` tells where the epoch stands behind it.
        """
        history = self._history
        if kind is WithSideEffects or kind is StealRefused:
            history.side_effects = True
        elif self._unproven and not history.side_effects:
            # A worker does not say whether a pinned batch that failed had side effects.
            history.side_effects = issubclass(kind, BaseException)
            self._unproven -= 1
            if not self._unproven:
                self._indices.pinned, self._first = False, self._indices.given
        if self._first is None or not history.side_effects:
            return False
        if (number := number_of(place())) is None or number < self._first:
            return False  # (Until then tickets go out unpinned, so that no worker makes a pinned one twice.)
        self._indices.pinned, self._first = True, None
        return True
