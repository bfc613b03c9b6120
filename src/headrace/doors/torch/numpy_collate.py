"""torch's `default_collate` for workers that have no reason to import torch: the same batches, as arrays.

A worker whose dataset gives numbers, strings and arrays needs torch only to make tensors of them, and importing it
takes longer than everything else in its start. So such a batch travels as arrays that are marked (`AsTensor`), and they
are tensors when the consumer has them. What is unusual in any way is left to torch, which is then imported.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.engine.wire.fold import AsTensor
from headrace.op import place
from headrace.ops.shape import collate

_NUMBERS = frozenset(map(np.dtype, ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")))
_WHOLE = frozenset(map(np.dtype, ("i8", "?")))
_PYTHONS: dict[type, frozenset[np.dtype[Any]]] = {int: _WHOLE, bool: _WHOLE, float: frozenset({np.dtype("f8")})}
"""The dtypes that numpy gives arrays of such numbers, unless there are others among them."""
_SCALARS = (np.bool_, np.number)
_SEQUENCES = (list, tuple)


class LeaveToTorch(Exception):
    """The batch, or a part of it, is not of the usual types: torch collates it."""


def default_collate(batch: Any) -> Any:
    """In place of torch's as the collate_fn of a loader, which sends the result away at once."""
    if "torch" not in sys.modules:
        try:
            return collated(batch, AsTensor, _refuse)
        except LeaveToTorch:
            pass
    from headrace.doors.torch.collate import with_torch

    return with_torch(batch)


def is_default_collate(collate_fn: object) -> bool:
    """Whether batches are made by torch's rules alone: what it gives is new memory."""
    ours: Any = sys.modules.get("headrace.doors.torch.collate")  # (it is loaded with torch)
    return collate_fn is default_collate and (ours is None or ours.unchanged())


def collated(batch: Any, tensor: Callable[[Any], Any], rest: Callable[[Any], Any]) -> Any:
    """A batch of usual samples, with what `tensor` makes of the arrays, and `rest` of parts that are not usual."""
    first: Any = batch[0] if isinstance(batch, _SEQUENCES) and batch else None
    kind = type(first)
    if kind is np.ndarray or kind in _PYTHONS or isinstance(first, _SCALARS):
        try:
            return tensor(stacked(batch, travels=True) if kind is np.ndarray else numbers(batch))
        except LeaveToTorch:
            pass
        return rest(batch)  # (Not in the handler: an error of torch's has nothing to do with ours.)
    if kind is str or kind is bytes:
        return batch
    if kind is dict:
        try:
            fields = {key: [sample[key] for sample in batch] for key in first}
        except (LookupError, TypeError):
            fields = None
        if fields is None:
            return rest(batch)
        return {key: collated(field, tensor, rest) for key, field in fields.items()}
    named = isinstance(first, tuple) and hasattr(first, "_fields")
    if (kind is tuple or kind is list or named) and {*map(type, batch)} == {kind} and len({*map(len, batch)}) == 1:
        columns = [collated(column, tensor, rest) for column in zip(*batch, strict=True)]
        return kind(*columns) if named else columns
    return rest(batch)


def unlike(samples: Any, path: str = "") -> str:
    """What keeps samples from being collated, in words: the first field that is None or not alike, if there is one."""
    if not isinstance(samples, _SEQUENCES) or not samples:
        return ""
    first, where = samples[0], f"field {path} of " if path else ""
    shape = getattr(first, "shape", None)
    for number, sample in enumerate(samples):
        if sample is None:
            return f"{where}sample {number} of the batch is None"
        if type(sample) is not type(first):
            if not all(isinstance(one, int | float | np.number) for one in (first, sample)):
                return f"{where}sample 0 is of type {type(first).__name__}, of sample {number} {type(sample).__name__}"
        elif shape is not None and sample.shape != shape:
            return f"{where}sample 0 has shape {tuple(shape)}, of sample {number} {tuple(sample.shape)}"
    if isinstance(first, dict):
        for number, sample in enumerate(samples):
            if differing := first.keys() ^ sample.keys():
                key = min(differing, key=repr)
                return f"{where}sample {number if key in first else 0} of the batch has no {key!r}"
        inside = ((f"{path}[{key!r}]", [sample[key] for sample in samples]) for key in first)
    elif isinstance(first, _SEQUENCES):
        for number, sample in enumerate(samples):
            if len(sample) != len(first):
                return f"{where}sample 0 has {len(first)} parts, sample {number} has {len(sample)}"
        inside = ((f"{path}[{i}]", list(column)) for i, column in enumerate(zip(*samples, strict=True)))
    else:
        return ""
    return next(filter(None, (unlike(column, inner) for inner, column in inside)), "")


def _refuse(batch: object) -> Any:
    raise LeaveToTorch


def numbers(batch: Sequence[Any]) -> Any:
    """The array of a batch of numbers or truth values."""
    kind = type(batch[0])
    # Torch and numpy do not promote alike: of numpy's scalars only those of one type go through numpy.
    if kind not in _PYTHONS and len(set(map(type, batch))) != 1:
        raise LeaveToTorch
    try:
        array = np.array(batch)
    except (ValueError, OverflowError, TypeError, RuntimeError):  # (the last is of tensors among them)
        raise LeaveToTorch from None
    if array.ndim != 1 or array.dtype not in _PYTHONS.get(kind, _NUMBERS):
        raise LeaveToTorch
    return array


def stacked(batch: Sequence[Any], travels: bool) -> Any:
    """Arrays on top of each other; the result lies in the memory that travels to the consumer, or not."""
    first = batch[0]
    dtype, shape = first.dtype, first.shape
    if dtype not in _NUMBERS or not shape:
        raise LeaveToTorch
    if any(type(a) is not np.ndarray or a.dtype != dtype or a.shape != shape for a in batch):
        raise LeaveToTorch
    if not travels or first.nbytes * len(batch) < place.worth:
        # (Without `out` numpy lays the result out as the arrays are: transposed ones make no contiguous batch.)
        out = np.empty((len(batch), *shape), dtype)
        np.concatenate(batch, out=out.reshape(-1, *shape[1:]))
        return out
    return collate.stacked(np, batch)
