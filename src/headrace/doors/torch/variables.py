"""Variables that user code can leave something in: they can be read, compared with what they were, and put back."""

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
"""In place of what is not set."""
_VALUES = (bool, int, float, str, bytes)
"""Types of what is the same when it is equal."""


class Variables(NamedTuple):
    """Those of one object, class, module, function or closure."""

    read: Callable[[], Mapping[str, Any]]
    """What they are now, by name."""
    write: Callable[[Mapping[str, Any]], object]
    """Make them what they were."""


def new_values(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Any] | None:
    """What is set that was not, or was None, before; None if anything else is not what it was."""
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
    """The attributes of an object, a class, a function or a module, without asking it for them."""
    if isinstance(thing, type):
        yield _of_class(thing)
    else:
        with suppress(AttributeError):
            its = object.__getattribute__(thing, "__dict__")
            if isinstance(its, dict):
                yield of_dict(its)
    bases = [vars(base) for base in type(thing).__mro__ if "__slots__" in vars(base)]
    slots = {name: one for its in bases for name, one in its.items() if isinstance(one, MemberDescriptorType)}
    if slots:
        yield _of_fields({name: (slot, thing) for name, slot in slots.items()})


def of_dict(space: dict[str, Any]) -> Variables:
    def write(before: Mapping[str, Any]) -> None:
        for name in space.keys() - before.keys():
            del space[name]
        space.update(before)

    return Variables(lambda: space, write)


def _of_class(kind: type) -> Variables:
    def write(before: Mapping[str, Any]) -> None:
        for name in vars(kind).keys() - before.keys():
            type.__delattr__(kind, name)
        for name, value in before.items():
            if vars(kind).get(name, MISSING) is not value:
                type.__setattr__(kind, name, value)

    return Variables(lambda: vars(kind), write)


def of_closure(function: Any) -> Variables:
    """The variables of functions around it."""
    names = function.__code__.co_freevars
    return _of_fields({name: (_CONTENTS, cell) for name, cell in zip(names, function.__closure__ or (), strict=True)})


_CONTENTS: Any = vars(CellType)["cell_contents"]


def _of_fields(fields: dict[str, tuple[Any, object]]) -> Variables:
    """Fields of C structures that may be empty: descriptors, each with the object that it is read from."""

    def value(field: Any, thing: object) -> Any:
        try:
            return field.__get__(thing)
        except (AttributeError, ValueError):
            return MISSING

    def write(before: Mapping[str, Any]) -> None:
        for name, (field, thing) in fields.items():
            if before[name] is not MISSING:
                field.__set__(thing, before[name])
            elif value(field, thing) is not MISSING:
                field.__delete__(thing)

    return Variables(lambda: {name: value(*field) for name, field in fields.items()}, write)


# --- arrays -----------------------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """What is in an array or a generator: it is the same, or another."""

    read: Callable[[], object]
    restore: Callable[[], object]


def content(thing: Any) -> Content | None:
    """Of an array or a tensor, if it is small and nobody else's."""
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
