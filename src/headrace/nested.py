"""One step into a container: whatever walks through samples, batches and states is built on it.

    def doubled(value):                        a walk is a function that calls itself on the parts
        if isinstance(value, float):
            return 2 * value                   its leaves
        return rebuilt(value, doubled)         dicts, lists, tuples, dataclasses; anything else stays as it is

A container keeps its class: named tuples, subclasses of list and dict, dataclasses (frozen ones and fields without init
too). A mapping that cannot be filled becomes a plain dict.
"""

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from itertools import islice
from typing import Any


def rebuilt(value: Any, part: Callable[[Any], Any]) -> Any:
    """The container with `part` applied to each of its items; what is no container is returned as it is."""
    kind = type(value)
    if kind is dict:
        return {key: part(inner) for key, inner in value.items()}
    if kind is list:
        return [part(inner) for inner in value]
    if kind is tuple:
        return tuple([part(inner) for inner in value])
    return _unusual(value, part)


def _unusual(value: object, part: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        parts = {key: part(inner) for key, inner in value.items()}
        if not isinstance(value, MutableMapping):
            return parts
        same: Any = copy.copy(value)
        for key, inner in parts.items():  # (not `update`, which adds to what a Counter has, and which some refuse)
            same[key] = inner
        return same
    if isinstance(value, tuple):
        return _tuple(value, [part(inner) for inner in value])
    if isinstance(value, list):
        same = copy.copy(value)
        same[:] = [part(inner) for inner in value]
        return same
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        same = copy.copy(value)
        for field in dataclasses.fields(value):
            # Past __setattr__, which a frozen dataclass refuses; fields without init are set too.
            object.__setattr__(same, field.name, part(getattr(value, field.name)))
        return same
    return value


def _tuple(value: tuple[Any, ...], parts: list[Any]) -> Any:
    if all(map(operator.is_, value, parts)):
        return value  # (a torch.Size is always this; some struct sequences can be made by nobody)
    kind = type(value)
    if "n_sequence_fields" in vars(kind):
        return kind(parts)  # a struct sequence (time.struct_time, what torch.max gives) refuses tuple.__new__
    same = tuple.__new__(kind, parts)
    getattr(same, "__dict__", {}).update(getattr(value, "__dict__", {}))
    return same


def is_container(value: object) -> bool:
    """Whether `rebuilt` goes into it."""
    return isinstance(value, Mapping | tuple | list) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def parts(value: object) -> Iterable[Any]:
    """The items of a dict (its values), a list, a tuple or a set; of anything else, nothing."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def data_bytes(value: object) -> int | None:
    """How many bytes an array or tensor says that its numbers have; None for what says nothing of the kind."""
    try:
        size = getattr(value, "nbytes", None)
    except RuntimeError:  # (sparse tensors know no number)
        return None
    return size if isinstance(size, int) else None


def rough_bytes(value: object, depth: int = 3) -> int:
    """Roughly how many bytes a sample has, estimated from the first sixteen items of each container."""
    size = data_bytes(value)
    if size is not None:
        return size + 64
    if isinstance(value, str | bytes | bytearray):
        return len(value) + 64
    if depth and isinstance(value, list | tuple | dict):
        first = list(islice(value.values() if isinstance(value, dict) else value, 16))
        return 64 + sum(rough_bytes(part, depth - 1) for part in first) * max(1, len(value)) // max(1, len(first))
    return 64
