"""Exact: numbers and arrays of several types as one array, without rounding any of them.

numpy and torch put int64 and uint64, or large whole numbers and floats, into a float type together, and round. Here
whole numbers become int64, or uint64 where all fit into that; where no type holds them all, an error names the sample.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from headrace.ops.shape import alike

LAST = 2**53
"""Up to here a float64 holds every whole number."""
CONVERT = "convert the field in a .map() before, or give .collate(fn) a function of your own"


def numbers(samples: list[Any], path: str) -> Any:
    """Python's or numpy's scalars as one array."""
    import numpy as np

    try:
        out = np.array(samples)
    except (ValueError, OverflowError):  # something among them has a length
        _refuse_other(np, samples, path)
        raise
    kind = out.dtype.kind
    # (numpy makes float16 or float32 only of numbers that these hold exactly.)
    if (kind in "ibu" or (kind == "f" and out.itemsize < 8)) and out.ndim == 1:
        return out
    if kind in "fc" and out.ndim == 1:
        kinds = {*map(type, samples)}
        if len(kinds) == 1 and issubclass(kinds.pop(), float | complex | np.inexact):
            return out
        # Floats above the limit are common (inf), so whole numbers are looked for only there.
        return out if not (np.abs(out) >= LAST).any() else _large(np, samples, out, path)
    if kind in "mM" and len({*map(type, samples)}) > 1:
        alike.check(samples, lambda sample: isinstance(sample, type(samples[0])), path)
    if kind in "OUST" or out.ndim != 1:
        _refuse_other(np, samples, path)
        return _large(np, samples, np.array(samples, object), path)  # numbers beyond 64 bits
    return out


def _large(np: ModuleType, samples: list[Any], out: Any, path: str) -> Any:
    whole = [isinstance(sample, int | np.integer | np.bool_) for sample in samples]
    if all(whole):
        return _whole(np, samples, path)
    if out.dtype.hasobject:
        out = np.array([complex(s) if isinstance(s, complex) else _float(s) for s in samples])
    for i, sample in enumerate(samples):
        if whole[i] and out[i].item() != int(sample):
            _refuse(path, i, sample, "is among floats, and no float64 holds it exactly")
    return out


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _whole(np: ModuleType, samples: list[Any], path: str) -> Any:
    """Whole numbers that are not all int64: uint64, or refused."""
    values = [int(sample) for sample in samples]
    for i, value in enumerate(values):
        if not -(2**63) <= value < 2**64:
            _refuse(path, i, value, "fits into no integer of 64 bits")
    lowest = min(values)
    if lowest < 0:
        _refuse(path, values.index(lowest), lowest, f"is among numbers up to {max(values)}: no integer type holds both")
    return np.array(values, np.uint64)


def arrays(np: ModuleType, samples: list[Any], path: str) -> Any:
    """Arrays of one shape and several dtypes, on top of each other."""
    dtype = np.result_type(*samples)
    if dtype.kind == "f" and all(array.dtype.kind in "iub" for array in samples):
        for i, array in enumerate(samples):
            if array.dtype.kind == "i" and array.size and array.min() < 0:
                _refuse(path, i, array.min(), "is among arrays of uint64: no integer type holds both")
        return np.stack(samples, dtype=np.uint64, casting="unsafe")
    out = np.stack(samples)
    _check(samples, out, path, "iu", lambda array: array.dtype.kind)
    return out


def tensors(torch: ModuleType, samples: list[Any], path: str) -> Any:
    """Tensors of one shape and several dtypes, on top of each other."""
    try:
        out = torch.stack(samples)
    except RuntimeError as refused:
        other = next(i for i, tensor in enumerate(samples) if tensor.dtype != samples[0].dtype)
        _refuse(path, other, f"of {samples[other].dtype}", f"and sample 0 of {samples[0].dtype}: {refused}")
    _check(samples, out, path, "i", lambda tensor: "f" if tensor.is_floating_point() or tensor.is_complex() else "i")
    return out


def _check(samples: list[Any], out: Any, path: str, whole: str, kind: Callable[[Any], str]) -> None:
    """Refuse whole numbers that became other ones. (Python compares them with floats exactly.)"""
    if kind(out) in whole:
        return
    for i, sample in enumerate(samples):
        if kind(sample) in whole and sample.tolist() != out[i].tolist():
            _refuse(path, i, f"of {sample.dtype}", f"is among others of {out.dtype}, which does not hold its numbers")


def _refuse_other(np: ModuleType, samples: list[Any], path: str) -> None:
    numbers = (bool, int, float, complex, np.number, np.bool_)
    kinds = numbers if isinstance(samples[0], numbers) else type(samples[0])  # (a date is no number)
    alike.check(samples, lambda sample: isinstance(sample, kinds), path)


def _refuse(path: str, number: int, value: object, why: str) -> NoReturn:
    raise ValueError(f"cannot collate{alike.where(path)}: sample {number} of the batch is {value} {why}; {CONVERT}")
