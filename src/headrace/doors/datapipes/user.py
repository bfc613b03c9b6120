"""Objects of the user's classes, as ops.

An object of an `IterDataPipe` subclass travels with holes where its pipes were. When it runs, a fresh copy of it gets
its pipes back: not the graph, but `Upstream`s, which iterate what the graph delivers at this place.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Here, Op, Source, place
from headrace.ops.reopen import reopened
from headrace.plan.seed import key

LARGEST = 1000


@dataclass(frozen=True, slots=True)
class Hole:
    """Where pipe number `number` of an object was."""

    number: int


def relinked(thing: Any, swaps: dict[int, Any]) -> Any:
    """A shallow copy of an object, in which the things with the given ids are replaced, also inside its containers."""
    twin = object.__new__(type(thing))
    for name, value in thing.__dict__.items():
        if name != "_access":  # what a table has found out about the old graph
            twin.__dict__[name] = _swapped(value, swaps)
    for cls in type(thing).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if name not in ("__weakref__", "__dict__", "op", "inputs") and hasattr(thing, name):
                object.__setattr__(twin, name, _swapped(getattr(thing, name), swaps))
    return twin


def relink(thing: Any, swaps: dict[int, Any]) -> None:
    """The same, in the object itself."""
    thing.__dict__.pop("_access", None)
    for name, value in list(thing.__dict__.items()):
        thing.__dict__[name] = _swapped(value, swaps)


def _swapped(value: Any, swaps: dict[int, Any]) -> Any:
    if id(value) in swaps:
        return swaps[id(value)]
    if isinstance(value, dict) and len(value) <= LARGEST:
        pairs = [(_swapped(k, swaps), _swapped(v, swaps)) for k, v in value.items()]
        if all(a is c and b is d for (a, b), (c, d) in zip(pairs, value.items(), strict=True)):
            return value
        return dict(pairs)
    if isinstance(value, list | tuple | set | frozenset) and len(value) <= LARGEST:
        parts = [_swapped(v, swaps) for v in value]
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


@dataclass(frozen=True, slots=True, eq=False)
class UserStream(Op[Any, Any]):
    """An object with `__iter__` of the user's."""

    pipe: Any
    """The object, with holes."""
    count: int = 0
    seeded: bool = True
    """Whether an object with set_seed() gets its seed from the loader."""
    consumer: bool = False
    user = True

    def flow(self, *inputs: Any) -> Iterator[Any]:
        *cursors, here = inputs
        where = _Where(here)
        # Holes are compared by value, but swapped by identity: find those that this copy really has.
        twin = relinked(self.pipe, self._swaps([Upstream(c, where) for c in cursors]))
        if self.seeded and callable(getattr(twin, "set_seed", None)):
            twin.set_seed(key(here.seed, "user"))
        return self._samples(twin, where, here)

    def _samples(self, twin: Any, where: "_Where", here: Here) -> Iterator[Any]:
        reset = getattr(twin, "reset", None)
        if callable(reset):
            reset()
        samples = iter(twin)
        if not self.count and here.strands > 1:
            samples = islice(samples, here.strand, None, here.strands)
        while True:
            where.here()
            try:
                sample = next(samples)
            except StopIteration:
                return
            where.number += 1
            yield sample

    def _swaps(self, values: list[Any]) -> dict[int, Any]:
        holes: dict[int, Any] = {}
        for value in self.pipe.__dict__.values():
            _find_holes(value, values, holes)
        return holes

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        if not hasattr(type(self.pipe), "__len__") or _is_ours(type(self.pipe).__len__):
            return None
        twin = relinked(self.pipe, self._swaps([_Sized(size) for size in inputs]))
        try:
            return len(twin)
        except (TypeError, NotImplementedError):
            return None

    def describe(self) -> str:
        return type(self.pipe).__name__

    def identity(self) -> tuple[Any, ...]:
        return (type(self.pipe).__module__, type(self.pipe).__qualname__)


@dataclass(frozen=True, slots=True, eq=False)
class UserTable(Source[Any]):
    """An object with `__getitem__` and `__len__` of the user's; the pipes inside it answer for themselves."""

    pipe: Any
    user = True

    def size(self) -> int | None:
        try:
            return len(self.pipe)
        except (TypeError, NotImplementedError):
            return None

    def get(self, position: Any) -> Any:
        return self.pipe[position]

    def describe(self) -> str:
        return type(self.pipe).__name__

    def identity(self) -> tuple[Any, ...]:
        return (type(self.pipe).__module__, type(self.pipe).__qualname__)


class Upstream:
    """A pipe of the user's object, at work: every `iter()` reads it from the start, the first one where it stands."""

    def __init__(self, cursor: Any, where: "_Where") -> None:
        self._cursor = cursor
        self._where = where
        self._opened = 0

    def __iter__(self) -> Iterator[Any]:
        cursor = self._cursor
        if self._opened:
            cursor = reopened(cursor, turn=cursor.turn + self._opened)
            if cursor is None:
                raise BadPipe("behind a shard point the samples come only once: read this pipe once, or put it before")
        self._opened += 1
        return self._samples(cursor)

    def _samples(self, cursor: Any) -> Iterator[Any]:
        for sample in cursor:
            self._where.here()  # back in the user's code: an error, or rng(), belongs to this op
            yield sample

    def __next__(self) -> Any:
        self._opened = max(1, self._opened)
        return next(self._cursor)

    def __len__(self) -> int:
        return len(self._cursor.node)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_cursor", "_where", "_opened"):
            raise AttributeError(name)
        op = self._cursor.node.op
        for thing in (getattr(op, "pipe", op), self._cursor.node):
            if hasattr(thing, name):
                return getattr(thing, name)
        raise AttributeError(f"the pipe {op.describe()} has no attribute {name!r}")


class _Sized:
    """A pipe of which only the length is known."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def __len__(self) -> int:
        if self._size is None:
            raise TypeError("the length is not known")
        return self._size


class _Where:
    """The place of the user's code."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.number = 0

    def here(self) -> None:
        place.at(self._here, self.number)


def _find_holes(value: Any, values: list[Any], found: dict[int, Any]) -> None:
    if isinstance(value, Hole):
        found[id(value)] = values[value.number]
    elif isinstance(value, dict) and len(value) <= LARGEST:
        for name, part in value.items():
            _find_holes(name, values, found)
            _find_holes(part, values, found)
    elif isinstance(value, list | tuple | set | frozenset) and len(value) <= LARGEST:
        for part in value:
            _find_holes(part, values, found)


def _is_ours(method: Any) -> bool:
    module = getattr(inspect.unwrap(method), "__module__", "") or ""
    return module.startswith("headrace.")
