"""torch's `default_collate` for workers that have no reason to import torch: the same batches, as arrays.

A worker whose dataset gives numbers, strings and arrays needs torch only to make tensors of them, and importing it
takes longer than everything else in its start. So such a batch travels as arrays that are marked (`AsTensor`), and they
are tensors when the consumer has them. What is unusual in any way is left to torch, which is then imported.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.engine.wire.fold import AsTensor
from headrace.op import place
from headrace.ops.shape import collate

_NUMBERS = frozenset(map(np.dtype, ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")))
_INT64, _BOOL, _FLOAT64 = np.dtype("i8"), np.dtype("?"), np.dtype("f8")


class Unusual(Exception):
    """Not for us."""


def default_collate(batch: Any) -> Any:
    """In place of torch's, as a loader's collate_fn: the result travels at once."""
    if "torch" not in sys.modules:
        try:
            return _collate(batch)
        except Unusual:
            pass
    from headrace.doors.torch.collate import with_torch

    return with_torch(batch)


def is_torchs(collate_fn: object) -> bool:
    """Whether batches are made by torch's rules alone: what it gives is new memory."""
    ours: Any = sys.modules.get("headrace.doors.torch.collate")  # (it is loaded with torch)
    return collate_fn is default_collate and (ours is None or ours.unchanged())


def _collate(batch: Sequence[Any]) -> Any:
    first: Any = batch[0] if isinstance(batch, list | tuple) and batch else None
    kind = type(first)
    if kind is np.ndarray:
        return AsTensor(stacked(batch, travels=True))
    if kind is int or kind is bool:
        return AsTensor(ints(batch))
    if kind is float:
        return AsTensor(floats(batch))
    if isinstance(first, np.bool_ | np.number):
        return AsTensor(scalars(batch))
    if kind is str or kind is bytes:
        return batch
    if kind is dict:
        if any(type(sample) is not dict or sample.keys() != first.keys() for sample in batch):
            raise Unusual
        return {key: _collate([sample[key] for sample in batch]) for key in first}
    if kind is tuple or kind is list:
        if any(type(sample) is not kind or len(sample) != len(first) for sample in batch):
            raise Unusual
        return [_collate(column) for column in zip(*batch, strict=True)]
    raise Unusual


def ints(batch: Sequence[Any]) -> Any:
    """The array of a batch of whole numbers or truth values."""
    array = _array(batch)
    if array.dtype != _INT64 and array.dtype != _BOOL:
        raise Unusual
    return array


def floats(batch: Sequence[Any]) -> Any:
    array = _array(batch)
    if array.dtype != _FLOAT64:
        raise Unusual
    return array


def scalars(batch: Sequence[Any]) -> Any:
    """The array of a batch of numpy's scalars."""
    # Torch and numpy do not promote alike: only scalars of one type go through numpy.
    if len(set(map(type, batch))) != 1:
        raise Unusual
    array = _array(batch)
    if array.dtype not in _NUMBERS:
        raise Unusual
    return array


def _array(batch: Sequence[Any]) -> Any:
    try:
        array = np.array(batch)
    except (ValueError, OverflowError, TypeError):
        raise Unusual from None
    if array.ndim != 1:
        raise Unusual
    return array


def stacked(batch: Sequence[Any], travels: bool) -> Any:
    """Arrays on top of each other; the result lies in the memory that travels to the consumer, or not."""
    first = batch[0]
    dtype, shape = first.dtype, first.shape
    if dtype not in _NUMBERS or not shape:
        raise Unusual
    if any(type(a) is not np.ndarray or a.dtype != dtype or a.shape != shape for a in batch):
        raise Unusual
    if not travels or first.nbytes * len(batch) < place.worth:
        return np.concatenate(batch).reshape(len(batch), *shape)
    return collate.stacked(np, batch)
