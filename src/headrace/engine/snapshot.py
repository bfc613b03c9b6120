"""Snapshots: where an epoch stands, as plain data that outlives the process.

    {"version": 1, "pipe": [hash of each op], "seed": 7, "epoch": 3, "at": null | place}

Only JSON values go in and come out: loading a snapshot executes nothing. A snapshot is checked whole before it is used,
and every refusal says what is wrong: a pipe that differs is refused with the op that differs.
"""

from typing import Any

from headrace.engine.wire.codec import unpack_state
from headrace.errors import SnapshotRefused
from headrace.pipe.graph import Pipe

VERSION = 1


def snapshot(pipe: Pipe[Any], seed: int, epoch: int, at: Any) -> dict[str, Any]:
    """A snapshot; `at` is what `Epoch.state()` said, None before the epoch."""
    return {"version": VERSION, "pipe": pipe.fingerprint(), "seed": seed, "epoch": epoch, "at": plain_state(at)}


def plain_state(value: Any) -> Any:
    """Tuples as lists, and the states of strands (which travel packed) opened."""
    if isinstance(value, tuple | list):
        return [plain_state(v) for v in value]
    if isinstance(value, bytes):
        return plain_state(unpack_state(value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {k: plain_state(v) for k, v in value.items()}
    raise SnapshotRefused(f"the state of an op holds a {type(value).__name__}; only JSON values can be in a snapshot")


def check(state: Any, pipe: Pipe[Any]) -> tuple[int, int, Any]:
    """The seed, the epoch and the place of a snapshot, if it is one and belongs to this pipe."""
    if not isinstance(state, dict):
        raise SnapshotRefused(f"a snapshot is a dict, as state_dict() returns it, not {type(state).__name__}")
    missing = [k for k in ("version", "pipe", "seed", "epoch", "at") if k not in state]
    if missing:
        raise SnapshotRefused(f"this is not a whole snapshot: {', '.join(map(repr, missing))} is missing")
    version = state["version"]
    if version != VERSION or isinstance(version, bool):
        raise SnapshotRefused(f"snapshot version {brief(version)} is not known; this headrace reads version {VERSION}")
    for name in ("seed", "epoch"):
        value = state[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value >= 2**64:
            raise SnapshotRefused(f"the snapshot's {name} is {brief(value)}; a whole number >= 0 is expected")
    _same_pipe(state["pipe"], pipe)
    return state["seed"], state["epoch"], state["at"]


def brief(value: Any) -> str:
    """A value of a snapshot, short enough for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of a million digits, lists a thousand deep
        return f"a {type(value).__name__} too large to show"
    return text if len(text) < 60 else text[:57] + "..."


def _same_pipe(saved: Any, pipe: Pipe[Any]) -> None:
    if not isinstance(saved, list) or not all(isinstance(h, str) for h in saved):
        raise SnapshotRefused("the snapshot's 'pipe' is not a list of hashes")
    mine = pipe.fingerprint()
    nodes = pipe.nodes()
    for i, (theirs, ours) in enumerate(zip(saved, mine, strict=False)):
        if theirs != ours:
            raise SnapshotRefused(
                f"this snapshot is of another pipe: op {i}, here {nodes[i].op.describe()}, was different when "
                f"it was taken"
            )
    if len(saved) != len(mine):
        raise SnapshotRefused(f"this snapshot is of another pipe: it had {len(saved)} ops, this one has {len(mine)}")
