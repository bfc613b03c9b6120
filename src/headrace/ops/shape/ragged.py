"""Ragged: samples whose arrays have unlike shapes, made alike before they are collated.

    pad=0         each array is filled up at its end, in every dimension, to the largest of the batch
    pad="nested"  torch's nested tensors, which keep each sample's own length

Only what differs is touched. Lists of numbers (tokens) count as arrays. How long each sample was is not kept beside
padded arrays: keep a field of lengths where that matters, or pad with a number that does not occur.
"""

import sys
from functools import partial
from typing import Any

import numpy as np

NUMBERS = (int, float, np.number, np.bool_)


def to_one_shape(samples: list[Any], pad: float | str, where: str) -> Any:
    """The same arrays in one shape, or, for "nested", one tensor of them; what else there is stays as it is.

    `where` says in errors which field they are.
    """
    parts = samples
    if any(isinstance(part, list) for part in samples):
        lists = [part for part in samples if isinstance(part, list)]
        if not all(isinstance(number, NUMBERS) for part in lists for number in part):
            return samples
        kind = _kind(lists)
        parts = [(np.asarray(p) if p else np.zeros(0, kind)) if isinstance(p, list) else p for p in samples]
    shapes = [tuple(part.shape) for part in parts if _is_array(part)]
    if len(shapes) < len(parts):
        return samples
    if len({*shapes}) == 1 and pad != "nested":
        return parts
    if len({len(shape) for shape in shapes}) > 1:
        other = next(shape for shape in shapes if len(shape) != len(shapes[0]))
        raise ValueError(f"cannot pad{where}: arrays of the shapes {shapes[0]} and {other}")
    if pad == "nested":
        import torch

        return torch.nested.nested_tensor([torch.as_tensor(part) for part in parts], layout=torch.jagged)
    shape = tuple(map(max, zip(*shapes, strict=True)))
    return [_filled(part, shape, pad, where) for part in parts]


def _kind(parts: list[list[Any]]) -> Any:
    return np.asarray(next((part for part in parts if part), [0])).dtype


def _is_array(part: object) -> bool:
    return isinstance(part, np.ndarray) or type(part) is getattr(sys.modules.get("torch"), "Tensor", None)


def _filled(part: Any, shape: tuple[int, ...], pad: float | str, where: str) -> Any:
    full = part.new_full if not isinstance(part, np.ndarray) else partial(np.full, dtype=part.dtype)
    try:
        # What a float type makes of a number is near to it; other types may make another number of one they lack.
        with np.errstate(invalid="ignore"):
            found = full((1,), pad).item()
        lacking = isinstance(found, int) and found != pad
    except (OverflowError, RuntimeError):
        lacking = True
    if lacking:
        raise ValueError(
            f"cannot collate{where}: arrays of {part.dtype} cannot be filled up with pad={pad}, which that type does "
            "not hold; choose another number, or convert the field in a .map() before"
        )
    whole = full(shape, pad)
    if isinstance(part, np.ma.MaskedArray):
        whole = whole.view(np.ma.MaskedArray)
    whole[tuple(slice(size) for size in part.shape)] = part
    return whole
