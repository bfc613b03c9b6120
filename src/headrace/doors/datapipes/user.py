"""Objects of the user's classes, as ops.

An object of an `IterDataPipe` subclass travels with holes where its pipes were. When it runs, a fresh copy of it gets
its pipes back: not the graph, but `Upstream`s, which iterate what the graph delivers at this place.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Here, Op, Source, place
from headrace.pipe.cursor import Cursor
from headrace.plan.seed import key

LARGEST = 1000


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Where pipe number `number` of an object was."""

    number: int


Swap = Callable[[Any], Any]
"""A thing as it is, or what stands in its place from now on."""


def relinked(thing: object, swap: Swap) -> Any:
    """A shallow copy of an object, in which things are swapped, also inside its containers."""
    twin = object.__new__(type(thing))
    for name, value in thing.__dict__.items():
        if name != "_access":  # what a table has found out about the old graph
            twin.__dict__[name] = _swapped(value, swap)
    for cls in type(thing).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if name not in ("__weakref__", "__dict__", "op", "inputs") and hasattr(thing, name):
                object.__setattr__(twin, name, _swapped(getattr(thing, name), swap))
    return twin


def relink(thing: object, swap: Swap) -> None:
    """The same, in the object itself."""
    thing.__dict__.pop("_access", None)
    for name, value in list(thing.__dict__.items()):
        thing.__dict__[name] = _swapped(value, swap)


def by_id(things: Mapping[int, Any]) -> Swap:
    """The things that stand for others, by the ids of those."""
    return lambda value: things.get(id(value), value)


def contents(value: object) -> list[Any]:
    """What is directly in a container, keys included, unless it is so large that it must be somebody's data."""
    if not isinstance(value, dict | list | tuple | set | frozenset) or len(value) > LARGEST:
        return []
    return [part for pair in value.items() for part in pair] if isinstance(value, dict) else list(value)


def _swapped(value: object, swap: Swap) -> Any:
    if (new := swap(value)) is not value:
        return new
    old = contents(value)
    parts = [_swapped(part, swap) for part in old]
    if all(a is b for a, b in zip(parts, old, strict=True)):
        return value
    if isinstance(value, dict):
        return dict(zip(parts[::2], parts[1::2], strict=True))
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


class UserObject:
    """An op that is an object of the user's: known by its class."""

    __slots__ = ()
    pipe: Any

    def describe(self) -> str:
        return type(self.pipe).__name__

    def identity(self) -> tuple[Any, ...]:
        return (type(self.pipe).__module__, type(self.pipe).__qualname__)


@dataclass(frozen=True, slots=True, eq=False)
class UserStream(UserObject, Op[Any, Any]):
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
        twin = self._filled([Upstream(c, where) for c in cursors])
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

    def _filled(self, pipes: Sequence[object]) -> Any:
        """A copy of the object with these in its holes."""
        return relinked(self.pipe, lambda value: pipes[value.number] if isinstance(value, Placeholder) else value)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        if not hasattr(type(self.pipe), "__len__") or _is_ours(type(self.pipe).__len__):
            return None
        try:
            return len(self._filled([object() if size is None else range(size) for size in inputs]))
        except (TypeError, NotImplementedError):
            return None


@dataclass(frozen=True, slots=True, eq=False)
class UserTable(UserObject, Source[Any]):
    """An object with `__getitem__` and `__len__` of the user's; the pipes inside it answer for themselves."""

    pipe: Any
    user = True

    def size(self) -> int | None:
        try:
            return len(self.pipe)
        except (TypeError, NotImplementedError):
            return None

    def get(self, position: object) -> Any:
        return self.pipe[position]


class Upstream:
    """A pipe of the user's object, at work: every `iter()` reads it from the start, the first one where it stands."""

    def __init__(self, cursor: Cursor, where: "_Where") -> None:
        self._cursor = cursor
        self._where = where
        self._opened = 0

    def __iter__(self) -> Iterator[Any]:
        cursor: Cursor | None = self._cursor
        if self._opened:
            cursor = self._cursor.reopened(turn=self._cursor.turn + self._opened)
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


class _Where:
    """The place of the user's code."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.number = 0

    def here(self) -> None:
        place.at(self._here, self.number)


def _is_ours(method: Any) -> bool:
    module = getattr(inspect.unwrap(method), "__module__", "") or ""
    return module.startswith("headrace.")
