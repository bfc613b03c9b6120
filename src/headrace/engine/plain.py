"""Plain data: what a snapshot is made of, and how it is checked before anything is run from it.

Only JSON values go in and come out. A `PlainRecord` is a dict of its fields; each field is checked by its type. Every
check raises SnapshotRefused with what was expected and what was found.
"""

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeAlias, get_args, get_origin, get_type_hints

from headrace.errors import SnapshotRefused

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
LARGEST = 2**63


class PlainRecord:
    """A frozen dataclass that is part of snapshots."""

    __slots__ = ()
    label: ClassVar[str]
    """What error messages call it."""
    kind: ClassVar[str] = ""
    """Its "kind" in a snapshot, where records of several kinds can stand."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Fields that a snapshot has only where they are not None."""

    @classmethod
    def read(cls, value: object) -> Self:
        """The record that plain data describes; SnapshotRefused if it describes none."""
        missing = {name for name in cls.optional if not (isinstance(value, dict) and name in value)}
        types = {name: kind for name, kind in _types(cls).items() if name not in missing}
        parts = record(value, list(types), cls.label)
        made = cls(**{name: _read(kind, part) for (name, kind), part in zip(types.items(), parts, strict=True)})
        made.check()
        return made

    def check(self) -> None:
        """Raise unless the values, each of its type, make sense together."""

    def plain(self) -> dict[str, Any]:
        """The record as plain data, if the states of ops in it are plain."""
        parts = {name: _plain_value(getattr(self, name)) for name in _types(type(self))}
        kind = {"kind": self.kind} if self.kind else {}
        return {**kind, **{name: part for name, part in parts.items() if part is not None or name not in self.optional}}


_KNOWN: dict[type, dict[str, Any]] = {}


def _types(cls: type) -> dict[str, Any]:
    """The fields of a record, and their types."""
    if cls not in _KNOWN:
        hints = get_type_hints(cls).items()
        _KNOWN[cls] = {name: kind for name, kind in hints if get_origin(kind) is not ClassVar}
    return _KNOWN[cls]


def _read(kind: object, value: object) -> Any:
    """The value of this type that plain data describes."""
    if kind is int:
        return whole(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise SnapshotRefused(f"true or false is expected in the snapshot, not {brief(value)}")
        return value
    parts = get_args(kind)
    if isinstance(kind, UnionType):  # of something and None
        return None if value is None else _read(next(part for part in parts if part is not NoneType), value)
    if get_origin(kind) is tuple:
        if parts[-1] is ...:
            return tuple(_read(parts[0], part) for part in rows(value))
        return tuple(map(_read, parts, row(value, len(parts), "a part of the snapshot")))
    if isinstance(kind, type) and issubclass(kind, PlainRecord):
        return kind.read(value)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a named tuple
        types = _types(kind)
        return kind(*map(_read, types.values(), record(value, list(types), "a part of the snapshot")))
    return value  # (the state of an op: the op checks it)


def _plain_value(value: object) -> Any:
    if isinstance(value, PlainRecord):
        return value.plain()
    if type(value) is tuple:
        return [_plain_value(part) for part in value]
    return dict(zip(_types(type(value)), value, strict=True)) if isinstance(value, tuple) else value


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
    """The "kind" of a record in plain data, if it has one."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def record(value: object, names: Sequence[str], what: str) -> list[Any]:
    """The values of a dict that has exactly these names, and perhaps "kind"."""
    if not isinstance(value, dict) or value.keys() - {"kind"} != set(names):
        raise SnapshotRefused(f"{what} is not a dict of {', '.join(names)}, but {brief(value)}")
    return [value[name] for name in names]


def row(value: object, size: int, what: str) -> list[Any]:
    """The value, if it is a list of this size."""
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
