"""The state of a DataLoader2: what it adds to the snapshot of its loader."""

from typing import Any

from headrace.errors import SnapshotRefused

VERSION = 2
STATE = ("seeded", "next", "running", "loader", "strands", "sharding", "service")


def check_state(state: object) -> dict[str, Any]:
    """A copy of the state, if it is a whole one."""
    if not isinstance(state, dict) or state.get("version") != VERSION or isinstance(state.get("version"), bool):
        raise SnapshotRefused(f"this is not a state of DataLoader2, version {VERSION}")
    absent = [name for name in STATE if name not in state]
    if absent:
        raise SnapshotRefused(f"this is not a whole state: it has no {', '.join(map(repr, absent))}")
    for name, value in (("next", state["next"] or 0), ("strands", state["strands"])):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise SnapshotRefused(f"the state's {name} is {value!r}; a whole number >= 0 is expected")
    return dict(state)
