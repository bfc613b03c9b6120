"""Copies: a sample that its reader may change, while the one in memory stays as it is."""

import copy
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.nested import rebuilt

IMMUTABLE = frozenset({int, float, bool, complex, str, bytes, type(None), range})
ALL_IMMUTABLE: set[object] = set(IMMUTABLE)
"""These classes, and numpy's scalars as soon as numpy is imported."""

Copy = Callable[[Any], Any]


def private_copy(sample: object) -> Any:
    """The sample, or a deep copy of it if its class can be changed."""
    return sample if type(sample) in IMMUTABLE else copy.deepcopy(sample)


def copier(array: Copy, tensor: Copy) -> Copy:
    """A function that copies a sample: arrays in it by `array`, tensors by `tensor`, and the containers around them.
    Objects of other classes are not copied."""

    def copied(value: Any) -> Any:
        if type(value) in ALL_IMMUTABLE:
            return value
        np = sys.modules.get("numpy")
        if np is not None:
            if len(ALL_IMMUTABLE) == len(IMMUTABLE):
                ALL_IMMUTABLE.update(set(np.sctypeDict.values()) - {np.void, np.object_})
            if isinstance(value, np.ndarray):
                return array(value)
            if isinstance(value, np.void):
                return value.copy()  # a row of a structured array is a view
        if is_tensor(value):
            return value if value.requires_grad else tensor(value)  # the history of one would not be that of a copy
        if isinstance(value, set | bytearray):
            return value.copy()
        if isinstance(value, deque):
            return type(value)((copied(part) for part in value), value.maxlen)
        return rebuilt(value, copied)

    def whole(sample: Any) -> Any:
        # (Most samples are a few numbers and words: these need no walk.)
        kind = type(sample)
        if kind in ALL_IMMUTABLE:
            return sample
        if kind is tuple or kind is list:
            if ALL_IMMUTABLE.issuperset(map(type, sample)):
                return sample if kind is tuple else sample.copy()
        elif kind is dict and ALL_IMMUTABLE.issuperset(map(type, sample.values())):
            return sample.copy()
        try:
            return copied(sample)
        except RecursionError:  # it holds itself
            return copy.deepcopy(sample)

    return whole


def is_tensor(value: object) -> bool:
    """Whether this is a tensor of torch's, or the class of one; works without importing torch."""
    return hasattr(value, "untyped_storage") and hasattr(value, "requires_grad")
