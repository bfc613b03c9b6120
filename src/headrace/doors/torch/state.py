"""A DataLoader's snapshot, as plain data.

    {"version": 2, "style": "map", "num_workers": 2, "base_seed": 7531..., "epoch": 0, "start": "{...", "at": "{..."}

The keys are always the same. `start` is what the order of the epoch began from (generator states, sampler states), `at`
where the epoch stands: `null` between epochs, else `{"batches", "drawn"}` with, for map-style, `{"samples", "done",
"iterator"}`, and for iterable-style `{"place"}`, the engine's place with the state of each worker's part. Both are
packed (`pack`) as text: JSON, with raw memory behind it where there are generators, arrays or tensors. So the whole
state is JSON, and no checkpoint format takes its parts apart.
"""

from typing import Any

from headrace.doors.torch.pack import pack, unpack
from headrace.engine.feeds.strands import InStrands
from headrace.engine.places import RunPlace
from headrace.errors import SnapshotRefused

VERSION = 2


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
    for name in ("num_workers", "epoch"):
        _count(state[name], name)
    if state["base_seed"] is not None:
        _count(state["base_seed"], "base_seed")
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
    _counts(at["drawn"], 2, "drawn")
    _count(at["batches"], "batches")
    if style == "map":
        _count(at["samples"], "samples")
        _counts(at["done"], None, "done")
    elif style == "iterable":
        place = RunPlace.read(at["place"]).place
        if isinstance(place, InStrands) and len(place.strands) != max(1, workers):
            raise SnapshotRefused(f"the state says num_workers={workers}, but its place is not that of so many")


_STYLES = {
    "map": "a map-style dataset",
    "iterable": "an iterable-style dataset",
    "auto": "an iterable-style dataset with shard='auto'",
}


def _counts(value: Any, size: int | None, name: str) -> None:
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise SnapshotRefused(f"the state's {name} is not a list" + (f" of {size}" if size else ""))
    for number in value:
        _count(number, name)


def _count(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise SnapshotRefused(f"the state's {name} is {value!r}; a whole number >= 0 is expected")
