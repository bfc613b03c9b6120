"""Plain data: what a snapshot is made of, and how it is looked at before anything is run from it.

Only JSON values go in and come out. Every check raises SnapshotRefused with what was expected and what was found.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from headrace.errors import SnapshotRefused

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
LARGEST = 2**63


def plain(value: object) -> Json:
    """The value as JSON: tuples become lists."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {k: plain(v) for k, v in value.items()}
    raise SnapshotRefused(f"the state of an op holds a {type(value).__name__}; only JSON values can be in a snapshot")


def brief(value: object) -> str:
    """A value of a snapshot, short enough for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of a million digits, lists a thousand deep
        return f"a {type(value).__name__} too large to show"
    return text if len(text) < 60 else text[:57] + "..."


def kind_of(value: object) -> str | None:
    """Which kind of record it says it is."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def record(value: object, names: Sequence[str], what: str) -> list[Any]:
    """The values of a dict that has exactly these names, and perhaps "kind"."""
    if not isinstance(value, dict) or value.keys() - {"kind"} != set(names):
        raise SnapshotRefused(f"{what} is not a dict of {', '.join(names)}, but {brief(value)}")
    return [value[name] for name in names]


def row(value: object, size: int, what: str) -> list[Any]:
    """The value, if it is a list of so many."""
    if not isinstance(value, list) or len(value) != size:
        raise SnapshotRefused(f"{what} is not a list of {size}, but {brief(value)}")
    return value


def rows(value: object) -> list[Any]:
    """The value, if it is a list."""
    if not isinstance(value, list):
        raise SnapshotRefused(f"a list is expected in the snapshot, not {brief(value)}")
    return value


def whole(value: object) -> int:
    """The value, if it is a whole number that can count something."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST:
        raise SnapshotRefused(f"a whole number >= 0 is expected in the snapshot, not {brief(value)}")
    return value


def wholes(value: object, size: int, what: str) -> tuple[int, ...]:
    """The value, if it is a list of so many whole numbers."""
    return tuple(whole(number) for number in row(value, size, what))
