"""Ragged: samples whose arrays have unlike shapes, made alike before they are collated.

    pad=0         each array is filled up at its end, in every dimension, to the largest of the batch
    pad="nested"  torch's nested tensors, which keep each sample's own length

Only what differs is touched. Lists of numbers (tokens) count as arrays. How long each sample was is not kept beside
padded arrays: keep a field of lengths where that matters, or pad with a number that does not occur.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.ops.shape.collate import OneTensor


def to_one_shape(samples: list[Any], pad: float | str) -> list[Any]:
    """The same samples, with arrays of one shape (or, for "nested", one tensor for all of them)."""
    first = samples[0]
    if isinstance(first, Mapping):
        columns = {key: _column([sample[key] for sample in samples], pad) for key in first}
        return [{key: column[i] for key, column in columns.items()} for i in range(len(samples))]
    if type(first) is tuple:
        return list(zip(*[_column(list(parts), pad) for parts in zip(*samples, strict=True)], strict=True))
    return _column(samples, pad)


def _column(parts: list[Any], pad: float | str) -> list[Any]:
    """One field of all samples."""
    first = parts[0]
    if isinstance(first, Mapping) or type(first) is tuple:
        return to_one_shape(parts, pad)
    if isinstance(first, list):
        if not all(isinstance(number, int | float) for part in parts for number in part):
            return parts
        parts = [np.asarray(part) if part else np.zeros(0, _kind(parts)) for part in parts]
    shapes = [tuple(part.shape) for part in parts if _is_array(part)]
    if len(shapes) < len(parts) or (len({*shapes}) == 1 and pad != "nested"):
        return parts
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError(f"cannot pad arrays of {shapes[0]} and {next(s for s in shapes if len(s) != len(shapes[0]))}")
    if pad == "nested":
        return _nested(parts)
    shape = tuple(map(max, zip(*shapes, strict=True)))
    return [_filled(part, shape, pad) for part in parts]


def _kind(parts: list[list[Any]]) -> Any:
    return np.asarray(next((part for part in parts if part), [0])).dtype


def _is_array(part: object) -> bool:
    return isinstance(part, np.ndarray) or type(part) is getattr(sys.modules.get("torch"), "Tensor", None)


def _filled(part: Any, shape: tuple[int, ...], pad: float | str) -> Any:
    inside = tuple(slice(size) for size in part.shape)
    if isinstance(part, np.ndarray):
        filled = np.full(shape, pad, part.dtype)
        filled[inside] = part
        return filled
    tensor = part.new_full(shape, pad)
    tensor[inside] = part
    return tensor


def _nested(parts: list[Any]) -> list[Any]:
    import torch

    one = OneTensor(torch.nested.nested_tensor([torch.as_tensor(part) for part in parts], layout=torch.jagged))
    return [one] * len(parts)
