"""Progress: where an iterator stands; the loader keeps that of its last one, for states after the iterator is gone."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from headrace.device import LastDelivered
from headrace.doors.torch.fetch import told
from headrace.doors.torch.indices import Indices
from headrace.doors.torch.state import LoaderPlace, LoaderState, MapPlace, StreamPlace
from headrace.engine.feeds.listed import Item
from headrace.engine.places import RunPlace
from headrace.engine.wire.codec import unpack_state
from headrace.loader import Loader


@dataclass(slots=True, eq=False)
class LoaderProgress:
    """Where an iterator stands, or stood last."""

    style: str
    workers: int
    start: dict[str, Any]
    drawn: tuple[int, int]
    """See `MapPlace`."""
    engine: Loader[Any]
    epoch: int
    delivered: int
    """Batches of the epoch that the caller has, or had before this iterator was made; of these, those that came before
    their turn (`in_order=False`) are not counted."""
    indices: Indices | None
    dataset: Any
    """A map-style dataset that has a state and is read by the main process."""
    dataset_states: Mapping[str, bytes]
    """The packed states of the workers' copies of a map-style dataset, by worker, behind the last batch delivered."""
    next_dataset_states: Mapping[str, bytes]
    """The same behind the batch that is about to be delivered."""
    kept: dict[str, Any] | None = None
    """At the end of the epoch: the states that datasets carry into the next one."""
    handed_over: LastDelivered | None = None
    """Where batches are taken ahead (copies to a device): what is known of the one that the caller has."""
    _left: LoaderPlace | None = None
    """Where it stood when the iterator went away."""

    @property
    def ended(self) -> bool:
        """Everything was delivered."""
        return self.kept is not None or (self._left is None and self.engine.place()[1] is None)

    def leave(self) -> None:
        """The iterator goes away, and dataset and engine may go on without it."""
        if not self.ended:
            self._left = self.at(peek=False)

    def at(self, ahead: bool = False, peek: bool = True) -> LoaderPlace:
        """Where the epoch stands; `ahead`: when the batch at hand has been delivered.

        `peek`: the sampler may be asked for one batch more than torch would ask it for.
        """
        if self._left is not None:
            return self._left
        _, place = self.engine.place(ahead)
        assert isinstance(place, RunPlace)
        if self.indices is None:
            return StreamPlace(self.delivered + ahead, self.drawn, place)
        number = place.place.number if isinstance(place.place, Item) else 0
        if self.dataset is not None and peek:
            self.indices.peek()  # its state may be that of a generator that the sampler draws from, too
        samples, iterator = self.indices.at(number)
        done = () if place.ahead is None else tuple(number + ticket for ticket in place.ahead.tickets)
        return MapPlace(
            number, samples, done, self.drawn, iterator, own=self.states(ahead), among=self.indices.permuted,
            size=self.indices.size,
        )  # fmt: skip

    def states(self, ahead: bool = False) -> dict[str, Any]:
        """The states of map-style datasets, by worker."""
        if self.dataset is not None:
            return {"0": told(self.dataset, deepcopy)}
        known = self.next_dataset_states if ahead else self.dataset_states
        return {number: unpack_state(state) if isinstance(state, bytes) else state for number, state in known.items()}

    def state(self, ahead: bool = False) -> dict[str, Any]:
        """The snapshot."""
        at = self.at(ahead)
        return LoaderState(self.workers, self.engine.seed, self.epoch, self.start, at).packed(self.style)

    def saved(self) -> dict[str, Any]:
        """What an autosave writes: the snapshot behind the batch at hand, or behind the one that the caller has."""
        return self.state(ahead=True) if self.handed_over is None else self.handed_over.state
