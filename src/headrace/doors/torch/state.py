"""A DataLoader's snapshot: plain data, and the same as typed records.

    {"version": 2, "style": "map", "num_workers": 2, "base_seed": 7531..., "epoch": 0, "start": "{...", "at": "{..."}

The keys are always the same. `start` is what the order of the epoch began from (generator states, sampler states), `at`
where the epoch stands: null between epochs, else a `MapPlace` or a `StreamPlace`. Both are packed (`pack`) as text:
JSON, with raw memory behind it where there are generators, arrays or tensors. So the whole state is JSON, and no
checkpoint format takes its parts apart.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.doors.torch.pack import pack, unpack
from headrace.doors.torch.stream import restored, stateful
from headrace.engine.feeds.strands import InStrands, Strand
from headrace.engine.places import RunPlace
from headrace.engine.plain import PlainRecord
from headrace.errors import SnapshotRefused

VERSION = 2
UNCOUNTED = -1
"""In place of the samples before a place, where only the batches are known."""
_STYLES = {
    "map": "a map-style dataset",
    "iterable": "an iterable-style dataset",
    "auto": "an iterable-style dataset with shard='auto'",
}


@dataclass(frozen=True, slots=True)
class MapPlace(PlainRecord):
    """Where an epoch over a map-style dataset stands."""

    label: ClassVar[str] = "the place in the state"
    optional: ClassVar[tuple[str, ...]] = ("own", "among", "size")
    batches: int
    """Batches that were delivered in order."""
    samples: int
    """How many samples are in them."""
    done: tuple[int, ...]
    """Numbers of later batches that were delivered before their turn (in_order=False)."""
    drawn: tuple[int, int]
    """Whether the base seed was drawn at the start of the epoch, and how often the sampler was iterated."""
    iterator: Any
    """The state of the sampler's iterator after these batches, if it has one."""
    own: Any = None
    """The state of each worker's dataset, by the worker's number."""
    among: int | None = None
    """Among how many samples a random sampler draws."""
    size: int | None = None
    """Samples in each batch; 0 where only the sampler knows."""


@dataclass(frozen=True, slots=True)
class StreamPlace(PlainRecord):
    """Where an epoch over an iterable-style dataset stands."""

    label: ClassVar[str] = "the place in the state"
    batches: int
    """Batches that were delivered."""
    drawn: tuple[int, int]
    """As in `MapPlace`."""
    place: RunPlace | None
    """The engine's place, with the state of each worker's dataset; None: read the epoch again from its start."""


LoaderPlace = MapPlace | StreamPlace


@dataclass(slots=True)
class LoaderState(PlainRecord):
    """A snapshot with its parts unpacked."""

    label: ClassVar[str] = "the state of a DataLoader"
    num_workers: int
    base_seed: int | None
    epoch: int
    start: Any
    at: Any
    """A MapPlace, a StreamPlace, or None between epochs."""

    def packed(self, style: str) -> dict[str, Any]:
        """The snapshot, as plain data."""
        at = None if self.at is None else self.at.plain()
        return {
            "version": VERSION, "style": style, "num_workers": self.num_workers, "base_seed": self.base_seed,
            "epoch": self.epoch, "start": pack(self.start, "start"), "at": pack(at, "at"),
        }  # fmt: skip


def check(state: Any, style: str) -> LoaderState:
    """The state, unpacked, if it is one of a DataLoader of this style."""
    if not isinstance(state, dict):
        raise SnapshotRefused(f"load_state_dict() takes what state_dict() returned, not {type(state).__name__}")
    names = ("num_workers", "base_seed", "epoch", "start", "at")
    missing = [name for name in ("version", "style", *names) if name not in state]
    if missing:
        raise SnapshotRefused(f"this is not a DataLoader's whole state: it has no {', '.join(map(repr, missing))}")
    if state["version"] != VERSION:
        raise SnapshotRefused(f"state version {state['version']!r} is not known; this headrace reads version {VERSION}")
    if state["style"] != style:
        theirs = _STYLES.get(state["style"], "something else")
        raise SnapshotRefused(f"this state is of a DataLoader over {theirs}, and this is one over {_STYLES[style]}")
    found = LoaderState.read({name: state[name] for name in names})
    found.start, found.at = unpack(found.start), unpack(found.at)
    if not isinstance(found.start, dict):
        raise SnapshotRefused("the state's 'start' is not a dict")
    if found.at is None:
        return found
    if found.base_seed is None:
        raise SnapshotRefused("the state stands inside an epoch, but its base_seed is missing")
    if style == "map":
        found.at = MapPlace.read(found.at)
        return found
    found.at = StreamPlace.read(found.at)
    place = None if found.at.place is None else found.at.place.place
    if style == "iterable" and isinstance(place, InStrands) and len(place.strands) != max(1, found.num_workers):
        raise SnapshotRefused(f"the state says num_workers={found.num_workers}, but its place is not that of so many")
    return found


def restore(dataset: Any, kept: dict[str, Any]) -> dict[str, Any]:
    """Bring a dataset of the main process to where it stood at the end of the epoch before.

    What the next epoch still has to know: that the dataset may stand there.
    """
    if "own" in kept and stateful(dataset):
        dataset.load_state_dict(kept["own"]["0"])
    place = RunPlace.read(kept["place"]).place if "place" in kept else None
    if not isinstance(place, InStrands) or (state := place.strands[0].state) is None:
        return {}
    restored(dataset, state[2])
    loaded = {**state[2], "dataset": None, "iterator": None}
    return {"place": RunPlace(InStrands(0, (Strand(state=[0, 0, loaded, 0, []]),))).plain()}
