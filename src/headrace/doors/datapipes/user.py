"""User objects as ops: instances of classes that users write.

An object of an `IterDataPipe` subclass is sent to a worker with placeholders where its pipes were. When it runs, a
fresh copy of it gets an `Upstream` for each placeholder, which iterates what the graph delivers at this place.
"""

import copy
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.errors import BadPipe, NoLength
from headrace.op import Here, Op, Source, place
from headrace.pipe.cursor import Cursor
from headrace.plan.seed import key

LARGEST = 1000
"""Containers with more items than this are taken for data, and not searched for pipes."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Stands for pipe number `number` of an object."""

    number: int


Swap = Callable[[Any], Any]
"""Returns what to put in the place of a value: another, or the value itself."""


def relinked(node: object, swap: Swap) -> Any:
    """A shallow copy of an object, in which values are swapped, also inside its containers."""
    copied = object.__new__(type(node))
    copied.__dict__.update(node.__dict__)
    for cls in type(node).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if name not in ("__weakref__", "__dict__", "op", "inputs") and hasattr(node, name):
                object.__setattr__(copied, name, _swapped(getattr(node, name), swap))
    relink(copied, swap)
    return copied


def relink(node: object, swap: Swap) -> None:
    """Swap values in the object itself, also inside its containers."""
    node.__dict__.pop("_access", None)  # what a table has found out about the old graph
    for name, value in list(node.__dict__.items()):
        node.__dict__[name] = _swapped(value, swap)


def by_id(replacements: Mapping[int, Any]) -> Swap:
    """Swaps the values whose ids are given."""
    return lambda value: replacements.get(id(value), value)


def contents(value: object) -> list[Any]:
    """What is directly in a container, keys included; nothing for other values, and for large containers (data)."""
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


def _own(value: Any) -> Any:
    """A container as a copy, and what it holds too; other values, and large containers (data), as they are."""
    if not isinstance(value, dict | list | tuple | set | deque) or len(value) > LARGEST:
        return value
    if isinstance(value, tuple):
        return _swapped(value, lambda part: part if part is value else _own(part))
    copied: Any = copy.copy(value)
    if isinstance(value, dict):
        copied.update({key: _own(part) for key, part in value.items()})
    elif isinstance(value, list | deque):
        for i, part in enumerate(value):
            copied[i] = _own(part)
    return copied


class UserObject:
    """An op that runs a user object; in texts and snapshots it has the name of the user's class."""

    __slots__ = ()
    pipe: Any

    def describe(self) -> str:
        return type(self.pipe).__name__

    def identity(self) -> tuple[Any, ...]:
        return (type(self.pipe).__module__, type(self.pipe).__qualname__)


@dataclass(frozen=True, slots=True, eq=False)
class UserStream(UserObject, Op[Any, Any]):
    """A user object with `__iter__`."""

    pipe: Any
    """The object, with placeholders."""
    count: int = 0
    """How many pipes feed it."""
    seeded: bool = True
    """Whether an object with set_seed() gets its seed from the loader."""
    consumer: bool = False
    user = True
    divides = True

    def flow(self, *inputs: Any) -> Iterator[Any]:
        *cursors, here = inputs
        at_work = _AtWork(here)
        pipe = self._filled([Upstream(c, at_work) for c in cursors])
        if self.seeded and callable(getattr(pipe, "set_seed", None)):
            pipe.set_seed(key(here.seed, "user"))
        return self._samples(pipe, at_work, here)

    def _samples(self, pipe: Any, at_work: "_AtWork", here: Here) -> Iterator[Any]:
        samples = iter(pipe)
        if not self.count and here.strands > 1:
            samples = islice(samples, here.strand, None, here.strands)
        while True:
            at_work.mark()
            try:
                sample = next(samples)
            except StopIteration:
                return
            at_work.number += 1
            yield sample

    def _filled(self, pipes: Sequence[object]) -> Any:
        """A copy of the object with these in the place of its placeholders.

        In a loader its containers are its own: several copies may run side by side, as many as the process has.
        """
        filled = relinked(self.pipe, lambda value: pipes[value.number] if isinstance(value, Placeholder) else value)
        if self.seeded:
            for name, value in filled.__dict__.items():
                filled.__dict__[name] = _own(value)
        return filled

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        if _has_no_length(self.pipe):
            return None
        try:
            return len(self._filled([object() if size is None else range(size) for size in inputs]))
        except Exception:
            return None  # it asks its pipes for more than their lengths, or does not know


@dataclass(frozen=True, slots=True, eq=False)
class UserTable(UserObject, Source[Any]):
    """A user object with `__getitem__` and `__len__`; it reads the pipes inside it by itself."""

    pipe: Any
    user = True

    def size(self) -> int | None:
        if _has_no_length(self.pipe):
            return None
        try:
            return len(self.pipe)
        except (TypeError, NotImplementedError):
            return None

    def get(self, position: object) -> Any:
        return self.pipe[position]

    def flow(self, here: Here) -> Iterator[Any]:
        if self.size() is None:
            name = type(self.pipe).__name__
            raise NoLength(f"object of type '{name}' has no len(): define __len__() to read it for 0, 1, 2, ...")
        return Source.flow(self, here)


class Upstream:
    """What a running user object has in the place of one of its pipes.

    The first `iter()` goes on where the cursor stands (after a resume, in the middle); others read from the start.
    """

    def __init__(self, cursor: Cursor, at_work: "_AtWork") -> None:
        self._cursor = cursor
        self._at_work = at_work
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
            self._at_work.mark()  # back in the user's code: an error, or rng(), belongs to this op
            yield sample

    def __next__(self) -> Any:
        self._opened = max(1, self._opened)
        return next(self._cursor)

    def __len__(self) -> int:
        return len(self._cursor.node)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_cursor", "_at_work", "_opened"):
            raise AttributeError(name)
        op = self._cursor.node.op
        for owner in (getattr(op, "pipe", op), self._cursor.node):
            if hasattr(owner, name):
                return getattr(owner, name)
        raise AttributeError(f"the pipe {op.describe()} has no attribute {name!r}")


class _AtWork:
    """Says that the user's code runs now, and makes sample number `number`."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.number = 0

    def mark(self) -> None:
        place.at(self._here, self.number)


def _has_no_length(pipe: object) -> bool:
    """Whether the user's class does not say how long it is; the `__len__` of our own classes asks the graph."""
    said: Any = getattr(type(pipe), "__len__", None)
    module = getattr(inspect.unwrap(said), "__module__", "") if said is not None else "headrace."
    return (module or "").startswith("headrace.")
