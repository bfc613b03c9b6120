"""Seen: places that user code can leave something in, with what was there before a batch.

Each tells after a batch whether it `differs`, and can put back (`restore`) what was there. What was missing or None may
be set once: that is how files are opened late. Then the place has `GROWN`, and what came has to be surveyed too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import CellType, MemberDescriptorType
from typing import Any

import numpy as np

from headrace.doors.torch.survey import MISSING, PLAIN, Survey, attributes, cell_value, is_foreign, slot_value, slots

WATCHED = 16
"""Objects whose attributes are compared after each batch, and"""
SINGLE = 32
"""other places; with more of them no worker may make what belongs to another one."""

SAME, GROWN, CHANGED = range(3)


class SeenPlace(ABC):
    """A place, and what was there."""

    @abstractmethod
    def differs(self) -> int:
        """Whether something else is there now: SAME, GROWN or CHANGED."""

    @abstractmethod
    def restore(self) -> None:
        """As it was."""


class SeenAttributes(SeenPlace):
    """All attributes of an object."""

    def __init__(self, now: dict[str, Any]) -> None:
        self._now = now
        self._before = dict(now)

    def differs(self) -> int:
        before, found, new = self._before, SAME, 0
        for name, value in self._now.items():
            was = before.get(name, MISSING)
            if was is value:
                continue
            found = max(found, _difference(was, value))
            if found == CHANGED:
                return CHANGED
            new += was is MISSING
        return found if len(self._now) == len(before) + new else CHANGED

    def restore(self) -> None:
        self._now.clear()
        self._now.update(self._before)


class SeenName(SeenPlace):
    """One variable or attribute: of a class, a module, a function or a closure, or in a slot."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], delete: Callable[[], None]) -> None:
        self._read, self._write, self._delete = read, write, delete
        self._before = read()

    def differs(self) -> int:
        value = self._read()
        return SAME if value is self._before else _difference(self._before, value)

    def restore(self) -> None:
        if self._read() is self._before:
            return
        if self._before is MISSING:
            self._delete()
        else:
            self._write(self._before)


class SeenArray(SeenPlace):
    """The content of a small array."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._before = array.copy()
        self._bytes = array.tobytes()

    def differs(self) -> int:
        return SAME if self._array.tobytes() == self._bytes else CHANGED

    def restore(self) -> None:
        self._array[...] = self._before


class SeenTensor(SeenPlace):
    """The content of a small tensor; torch counts how often it is changed."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._before = tensor.detach().clone()
        self._version = tensor._version

    def differs(self) -> int:
        return SAME if self._tensor._version == self._version else CHANGED

    def restore(self) -> None:
        self._tensor.detach().copy_(self._before)
        self._version = self._tensor._version


class SeenSizes(SeenPlace):
    """How many names there are in classes, and in objects none of whose attributes is ever set: no more may come."""

    def __init__(self, owners: list[Any]) -> None:
        self._owners = owners
        self._spaces = [vars(owner) for owner in owners]
        self._names = [frozenset(space) for space in self._spaces]
        self._before = sum(map(len, self._spaces))

    def differs(self) -> int:
        return SAME if sum(map(len, self._spaces)) == self._before else GROWN

    def restore(self) -> None:
        if self.differs() == SAME:
            return
        for owner, space, names in zip(self._owners, self._spaces, self._names, strict=True):
            for name in space.keys() - names:
                delattr(owner, name)


def _difference(was: object, value: object) -> int:
    if type(value) in PLAIN and type(was) is type(value) and was == value:
        return SAME
    allowed = (was is None or was is MISSING) and value is not MISSING and clear(value)
    return GROWN if allowed else CHANGED


def clear(*things: object) -> bool:
    """Whether everything is known of what these leave behind, or can be noticed."""
    return seen(Survey(*things)) is not None


def seen(survey: Survey) -> list[SeenPlace] | None:
    """All places that have to be compared after each batch; None if there are too many, or not all are known."""
    if not survey.clear:
        return None
    sizes: list[Any] = list(survey.classes)
    objects: list[SeenPlace] = []
    single: list[SeenPlace] = []
    for thing in survey.objects:
        its = attributes(thing)
        if its is not None and _is_quiet(survey, thing, its):
            sizes.append(thing)
        elif its is not None:
            objects.append(SeenAttributes(its))
        single += [_slot(member, thing) for member in slots(type(thing)) if _is_stored(survey, member.__name__)]
        if len(objects) > WATCHED or len(single) > SINGLE:
            return None
    for kind in survey.classes:
        names = [name for name, value in vars(kind).items() if _is_stored(survey, name) and _is_value(name, value)]
        single += [_named(vars(kind), name, kind) for name in names]
    for owner in (*survey.modules, *survey.functions):
        single += [_named(vars(owner), name, owner) for name in survey.stored & vars(owner).keys()]
    for (_, name), space in survey.globals.items():
        single.append(_global(space, name))
    single += map(_cell, survey.cells.values())
    single += map(_array, survey.arrays)
    if len(single) > SINGLE:
        return None
    return [*objects, *single, SeenSizes(sizes)]


def _is_quiet(survey: Survey, thing: object, its: dict[str, Any]) -> bool:
    """No code sets any of the attributes that an object has; that of a foreign base class nobody has looked at."""
    foreign = any(is_foreign(base) and base.__module__ not in _INERT for base in type(thing).__mro__)
    return not foreign and not survey.stores_any and survey.stored.isdisjoint(its)


_INERT = ("builtins", "abc", "typing", "enum")
"""Modules whose classes set no attributes but when an object is made."""


def _is_stored(survey: Survey, name: str) -> bool:
    return survey.stores_any or name in survey.stored


def _is_value(name: str, value: object) -> bool:
    return not name.startswith("__") and not hasattr(type(value), "__get__")


def _named(space: Mapping[str, Any], name: str, owner: Any) -> SeenName:
    return SeenName(
        lambda: space.get(name, MISSING), lambda value: setattr(owner, name, value), lambda: delattr(owner, name)
    )


def _global(space: dict[str, Any], name: str) -> SeenName:
    return SeenName(
        lambda: space.get(name, MISSING), lambda value: space.update({name: value}), lambda: space.pop(name)
    )


def _slot(member: MemberDescriptorType, thing: object) -> SeenName:
    def write(value: object) -> None:
        member.__set__(thing, value)

    return SeenName(lambda: slot_value(member, thing), write, lambda: member.__delete__(thing))


def _cell(cell: CellType) -> SeenName:
    def write(value: object) -> None:
        cell.cell_contents = value

    def delete() -> None:
        del cell.cell_contents

    return SeenName(lambda: cell_value(cell), write, delete)


def _array(array: Any) -> SeenPlace:
    return SeenArray(array) if type(array) is np.ndarray else SeenTensor(array)
