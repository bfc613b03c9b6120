"""A DataLoader's snapshot, as plain data.

    {"version": 1, "style": "map", "num_workers": 2, "base_seed": 7531..., "epoch": 0, "start": {...}, "at": {...}}

`start` is what the order of the epoch began from (generator states, sampler states), `at` where the epoch stands: None
between epochs; for map-style `{"batches", "samples", "done", "drawn", "iterator"}`; for iterable-style `{"mark",
"drawn"}`, the engine's mark with the state of each worker's part. Only JSON values, bytes, arrays and tensors go in;
loading executes nothing.
"""

from typing import Any

import numpy as np
import torch

from headrace.engine.codec import unpack_state
from headrace.errors import SnapshotRefused

VERSION = 1


def plain(value: Any, path: str = "state") -> Any:
    """A copy of the value; what is not plain data is refused by its path."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        for k in value:
            if not isinstance(k, str | int) or isinstance(k, bool):
                raise SnapshotRefused(
                    f"{path} has a key of type {type(k).__name__}; keys of a snapshot are text or numbers"
                )
        return {k: plain(v, f"{path}[{k!r}]") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, f"{path}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.copy()
    raise SnapshotRefused(
        f"{path} is a {type(value).__qualname__}; a snapshot holds JSON values, bytes, arrays and tensors only: let "
        f"the state_dict() that made it return these"
    )


def opened(mark: Any) -> Any:
    """A mark of the engine's with its packed parts opened: the states of strands travel as bytes."""
    if isinstance(mark, tuple) and mark and mark[0] == "s":
        strands = [[unpack_state(s) if isinstance(s, bytes) else s, *rest] for s, *rest in mark[2]]
        return ["s", mark[1], strands]
    if isinstance(mark, tuple | list):
        return [opened(part) for part in mark]
    return mark


def check(state: Any, style: str) -> dict[str, Any]:
    """The state, if it is one of a DataLoader of this style."""
    if not isinstance(state, dict):
        raise SnapshotRefused(f"load_state_dict() takes what state_dict() returned, not {type(state).__name__}")
    missing = [k for k in ("version", "style", "num_workers", "base_seed", "epoch", "start", "at") if k not in state]
    if missing:
        raise SnapshotRefused(f"this is not a DataLoader's whole state: {', '.join(map(repr, missing))} is missing")
    if state["version"] != VERSION:
        raise SnapshotRefused(f"state version {state['version']!r} is not known; this headrace reads version {VERSION}")
    if state["style"] != style:
        raise SnapshotRefused(
            f"this state is of a DataLoader over {_STYLES.get(state['style'])}, and this is one over {_STYLES[style]}"
        )
    for name in ("num_workers", "epoch"):
        _count(state[name], name)
    if state["base_seed"] is not None:
        _count(state["base_seed"], "base_seed")
    if not isinstance(state["start"], dict):
        raise SnapshotRefused("the state's 'start' is not a dict")
    if state["at"] is not None:
        _check_place(state["at"], style, state["num_workers"])
    return state


def _check_place(at: Any, style: str, workers: int) -> None:
    wanted = {"drawn", "batches", "samples", "done", "iterator"} if style == "map" else {"drawn", "mark"}
    if not isinstance(at, dict) or not wanted <= at.keys():
        raise SnapshotRefused(f"the place in the state is not whole: it needs {', '.join(sorted(wanted))}")
    _counts(at["drawn"], 2, "drawn")
    if style == "map":
        _count(at["batches"], "batches")
        _count(at["samples"], "samples")
        _counts(at["done"], None, "done")
    elif style == "iterable" and isinstance(at["mark"], list) and at["mark"] and isinstance(at["mark"][0], list):
        strands = at["mark"][0][-1]
        if not isinstance(strands, list) or len(strands) != max(1, workers):
            raise SnapshotRefused(
                f"the state was taken with num_workers={workers}, but its place is not that of so many"
            )


_STYLES = {
    "map": "a map-style dataset",
    "iterable": "an iterable-style dataset",
    "auto": "an iterable with shard='auto'",
}


def _counts(value: Any, size: int | None, name: str) -> None:
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise SnapshotRefused(f"the state's {name} is not a list" + (f" of {size}" if size else ""))
    for number in value:
        _count(number, name)


def _count(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise SnapshotRefused(f"the state's {name} is {value!r}; a whole number >= 0 is expected")
