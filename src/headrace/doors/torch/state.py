"""A DataLoader's snapshot, as plain data, and what an iterator has to remember for it.

    {"version": 2, "style": "map", "num_workers": 2, "base_seed": 7531..., "epoch": 0, "start": "{...", "at": "{..."}

The keys are always the same. `start` is what the order of the epoch began from (generator states, sampler states), `at`
where the epoch stands: `null` between epochs, else `{"batches", "drawn"}` with, for map-style, `{"samples", "done",
"iterator", "among"}` (the last: among how many samples a random sampler draws), and for iterable-style `{"place"}`, the
engine's place with the state of each worker's part. Both are packed (`pack`) as text: JSON, with raw memory behind it
where there are generators, arrays or tensors. So the whole state is JSON, and no checkpoint format takes its parts
apart.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from headrace.doors.torch.indices import Indices
from headrace.doors.torch.pack import pack, unpack
from headrace.doors.torch.stream import restored, stateful
from headrace.engine.feeds.listed import Item
from headrace.engine.feeds.strands import InStrands
from headrace.engine.places import RunPlace
from headrace.errors import SnapshotRefused
from headrace.loader import Loader

VERSION = 2


@dataclass(slots=True, eq=False)
class LoaderProgress:
    """Where an iterator stands, also after it is gone: the loader remembers its last one's."""

    style: str
    workers: int
    start: dict[str, Any]
    drawn: list[int]
    """Whether the base seed was drawn at the start of this epoch, and how often the sampler was iterated."""
    engine: Loader[Any]
    epoch: int
    delivered: int
    """Batches of the epoch that the caller has, or had before this iterator was made."""
    indices: Indices | None
    dataset: Any
    """The dataset, if it has a state and no workers have copies of it."""
    dataset_states: Mapping[str, Any]
    """By worker, the state of its map-style dataset, and"""
    next_dataset_states: Mapping[str, Any]
    """the same when the batch at hand is handed over."""
    kept: dict[str, Any] | None = None
    """At the end of the epoch: what datasets that have a state stand at then."""
    opens: Callable[[], Callable[[], None] | None] = lambda: None
    """Of a live iterator: waits until datasets have told where they stand before the first batch."""
    _left: dict[str, Any] | None = None

    @property
    def ended(self) -> bool:
        """Everything was delivered."""
        return self.kept is not None or (self._left is None and self.engine.place()[1] is None)

    def leave(self) -> None:
        """The iterator goes away."""
        if not self.ended:
            self._left = self.at()

    def at(self, ahead: bool = False) -> dict[str, Any]:
        """Where the epoch stands, or will when the batch at hand is handed over."""
        if self._left is not None:
            return self._left
        if (opens := self.opens()) is not None:
            opens()
        _, place = self.engine.place(ahead)
        assert isinstance(place, RunPlace)
        if self.indices is None:
            return {"place": place.plain(), "batches": self.delivered + ahead, "drawn": self.drawn}
        number = place.place.number if isinstance(place.place, Item) else 0
        if self.dataset is not None:
            self.indices.peek()  # its state may be that of a generator that the sampler draws from, too
        samples, iterator = self.indices.at(number)
        done = [] if place.ahead is None else [number + ticket for ticket in place.ahead.tickets]
        return {
            "batches": number, "samples": samples, "done": done,
            "iterator": iterator, "own": self.states(ahead), "drawn": self.drawn, "among": self.indices.permuted,
        }  # fmt: skip

    def states(self, ahead: bool = False) -> dict[str, Any]:
        """The states of map-style datasets, by worker."""
        if self.dataset is not None:
            return {"0": deepcopy(self.dataset.state_dict())}
        return dict(self.next_dataset_states if ahead else self.dataset_states)

    def state(self, ahead: bool = False) -> dict[str, Any]:
        return snapshot(self.style, self.workers, self.engine.seed, self.epoch, self.start, self.at(ahead))


def snapshot(
    style: str, num_workers: int, base_seed: int | None, epoch: int, start: dict[str, Any], at: dict[str, Any] | None
) -> dict[str, Any]:
    """The snapshot of a loader."""
    return {
        "version": VERSION, "style": style, "num_workers": num_workers, "base_seed": base_seed, "epoch": epoch,
        "start": pack(start, "start"), "at": pack(at, "at"),
    }  # fmt: skip


def check(state: Any, style: str) -> dict[str, Any]:
    """The state with its parts unpacked, if it is one of a DataLoader of this style."""
    if not isinstance(state, dict):
        raise SnapshotRefused(f"load_state_dict() takes what state_dict() returned, not {type(state).__name__}")
    missing = [k for k in ("version", "style", "num_workers", "base_seed", "epoch", "start", "at") if k not in state]
    if missing:
        raise SnapshotRefused(f"this is not a DataLoader's whole state: {', '.join(map(repr, missing))} is missing")
    if state["version"] != VERSION:
        raise SnapshotRefused(f"state version {state['version']!r} is not known; this headrace reads version {VERSION}")
    if state["style"] != style:
        theirs = _STYLES.get(state["style"], "something else")
        raise SnapshotRefused(f"this state is of a DataLoader over {theirs}, and this is one over {_STYLES[style]}")
    _check_counts(state)
    start, at = unpack(state["start"]), unpack(state["at"])
    if not isinstance(start, dict):
        raise SnapshotRefused("the state's 'start' is not a dict")
    if at is not None:
        _check_place(at, style, state["num_workers"])
        if state["base_seed"] is None:
            raise SnapshotRefused("the state stands inside an epoch, but its base_seed is missing")
    return {**state, "start": start, "at": at}


def _check_place(at: Any, style: str, workers: int) -> None:
    wanted = {"drawn", "batches"} | ({"samples", "done", "iterator"} if style == "map" else {"place"})
    if not isinstance(at, dict) or not wanted <= at.keys():
        raise SnapshotRefused(f"the place in the state is not whole: it needs {', '.join(sorted(wanted))}")
    _check_counts(at)
    if style == "iterable":
        place = RunPlace.read(at["place"]).place
        if isinstance(place, InStrands) and len(place.strands) != max(1, workers):
            raise SnapshotRefused(f"the state says num_workers={workers}, but its place is not that of so many")


_STYLES = {
    "map": "a map-style dataset",
    "iterable": "an iterable-style dataset",
    "auto": "an iterable-style dataset with shard='auto'",
}


def _check_counts(part: dict[str, Any]) -> None:
    """Raise if what counts something in a state, or in its place, could not."""
    for name in part.keys() & {"num_workers", "epoch", "base_seed", "batches", "samples", "drawn", "done"}:
        value, listed = part[name], name in ("drawn", "done")
        if listed and (not isinstance(value, list) or (name == "drawn" and len(value) != 2)):
            raise SnapshotRefused(f"the state's {name} is not a list{' of 2' if name == 'drawn' else ''}")
        for number in value if listed else [value]:
            counts = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**64
            if not counts and not (name == "base_seed" and number is None):
                raise SnapshotRefused(f"the state's {name} is {number!r}; a whole number >= 0 is expected")


def restore(dataset: Any, kept: dict[str, Any]) -> None:
    """Bring a dataset, which nobody else has, to where it stood at the end of the epoch before."""
    if "own" in kept and stateful(dataset):
        dataset.load_state_dict(kept["own"]["0"])
    if "place" in kept:
        place = RunPlace.read(kept["place"]).place
        if isinstance(place, InStrands) and (state := place.strands[0].state) is not None:
            restored(dataset, state[2])


def refuse_states(at: dict[str, Any] | None) -> None:
    """Raise if a place holds states of datasets in workers, of which there is another number now."""
    if at is not None and at.get("own"):
        raise SnapshotRefused(
            f"this snapshot holds the states of {len(at['own'])} copies of the dataset, one of each worker; load it "
            f"with that many workers"
        )


def number_of(place: RunPlace) -> int | None:
    """Which item of the list, or whose turn among the streams, came last."""
    at = place.place
    if isinstance(at, Item):
        return at.number - 1
    return at.turn - 1 if isinstance(at, InStrands) else None
