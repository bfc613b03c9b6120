"""Variables that user code can change: they can be read, compared with what they were, and put back."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import is_
from types import CellType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

SMALL = 4096
"""Bytes of the largest array that is compared after each batch."""
MISSING = object()
"""In place of the value of a variable that is not set."""
_VALUES = (bool, int, float, str, bytes)
"""Types whose values are the same when they are equal."""


class Variables(NamedTuple):
    """The variables of one object, class, module, function or closure."""

    read: Callable[[], Mapping[str, Any]]
    """Their values now, by name."""
    put: Callable[[str, Any], object]
    delete: Callable[[str], object]

    def restore(self, before: Mapping[str, Any]) -> None:
        """Give them the values that they had."""
        now = dict(self.read())
        for name in now.keys() | before.keys():
            was = before.get(name, MISSING)
            if was is MISSING and now[name] is not MISSING:
                self.delete(name)
            elif was is not now.get(name, MISSING):
                self.put(name, was)


def new_values(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Any] | None:
    """The values of variables that were not set, or None, before; None if any other variable has changed."""
    if len(before) == len(now) and all(map(is_, before.values(), now.values())) and all(map(is_, before, now)):
        return []
    new = []
    for name in before.keys() | now.keys():
        was, value = before.get(name, MISSING), now.get(name, MISSING)
        if was is value or (type(value) in _VALUES and type(was) is type(value) and was == value):
            continue
        if value is MISSING or not (was is MISSING or was is None):
            return None
        new.append(value)
    return new


def variables_of(thing: Any) -> Iterator[Variables]:
    """The attributes of an object, a class, a function or a module, read without running any code of it."""
    if isinstance(thing, type):
        yield Variables(lambda: vars(thing), partial(type.__setattr__, thing), partial(type.__delattr__, thing))
    else:
        with suppress(AttributeError):
            attributes = object.__getattribute__(thing, "__dict__")
            if isinstance(attributes, dict):
                yield of_dict(attributes)
    bases = [vars(base) for base in type(thing).__mro__ if "__slots__" in vars(base)]
    slots = {name: (slot, thing) for base in bases for name, slot in base.items() if type(slot) is MemberDescriptorType}
    if slots:
        yield _of_fields(slots)


def of_dict(space: dict[str, Any]) -> Variables:
    return Variables(lambda: space, space.__setitem__, space.__delitem__)


def of_closure(function: Any) -> Variables:
    """The variables of the functions around it."""
    names = function.__code__.co_freevars
    return _of_fields({name: (_CONTENTS, cell) for name, cell in zip(names, function.__closure__ or (), strict=True)})


_CONTENTS: Any = vars(CellType)["cell_contents"]


def _of_fields(fields: dict[str, tuple[Any, object]]) -> Variables:
    """Fields of C structures, which may be empty: descriptors, each with the object that it is read from."""

    def value(descriptor: Any, holder: object) -> Any:
        try:
            return descriptor.__get__(holder)
        except (AttributeError, ValueError):
            return MISSING

    return Variables(
        lambda: {name: value(*field) for name, field in fields.items()},
        lambda name, new: fields[name][0].__set__(fields[name][1], new),
        lambda name: fields[name][0].__delete__(fields[name][1]),
    )


# --- arrays -----------------------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """What is in an array or a generator: it can be compared with what it was, and put back."""

    read: Callable[[], object]
    restore: Callable[[], object]


def content(thing: Any) -> Content | None:
    """The content of an array or a tensor that is small and does not share its memory with others."""
    if type(thing) is np.ndarray and _is_small_array(thing):
        return Content(thing.tobytes, partial(np.copyto, thing, thing.copy()))
    if is_tensor(type(thing)) and _is_small_tensor(thing):
        # (torch counts how often it is changed.)
        return Content(partial(getattr, thing, "_version"), partial(thing.detach().copy_, thing.detach().clone()))
    return None


def is_tensor(kind: type) -> bool:
    return kind is getattr(sys.modules.get("torch"), "Tensor", None)


def _is_small_array(array: Any) -> bool:
    owner: Any = array
    while type(owner) is np.ndarray and owner.base is not None:
        owner = owner.base
    if type(owner) is memoryview:  # (it came in a pickle)
        owner = owner.obj
    private = type(owner) in (np.ndarray, bytearray)
    return private and array.nbytes <= SMALL and array.flags.writeable and not array.dtype.hasobject


def _is_small_tensor(tensor: Any) -> bool:
    plain = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu"
    return plain and tensor.nbytes <= SMALL and not tensor.is_inference() and not tensor.is_shared()
