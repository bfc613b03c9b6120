"""Collate: a list of samples as one sample of arrays.

Numbers and numpy arrays become numpy arrays, torch tensors become torch tensors; dicts, tuples, named tuples,
dataclasses and lists keep their form around them; strings, bytes and other objects stay a list. A field has one form in
all samples, and None is none (`ops.shape.alike`). No number is rounded (`ops.shape.exact`).

Large arrays are written straight into the memory that travels to the consumer (`place.empty`), so that a batch is
copied once; where the engine has put the samples there one by one (`place.rows`), they stay.

Arrays of unlike shapes are an error, unless it was said what becomes of them: `ops.shape.ragged`.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.errors import BadOption, BadPipe, warn_once
from headrace.op import Each, place
from headrace.ops.shape import alike, exact
from headrace.ops.shape.alike import where

UNLIKE = "say .collate(pad=0) to fill them up, give .collate(fn) a function, or keep them as lists"


@dataclasses.dataclass(frozen=True, slots=True)
class Collate(Each[list[Any], Any]):
    """Turn a list of samples into one sample of arrays, with `fn` or by the rules above."""

    fn: Callable[[list[Any]], Any] | None = None
    pad: float | str | None = None
    """For arrays of unlike shapes: the number to fill them up with, or "nested" for nested tensors of torch."""
    user = True

    def __post_init__(self) -> None:
        number = isinstance(self.pad, int | float) and not isinstance(self.pad, bool)
        if self.pad is not None and self.pad != "nested" and not number:
            raise BadOption(f"collate(pad=...) takes a number or 'nested', not {self.pad!r}")
        if self.pad is not None and self.fn is not None:
            raise BadOption("collate() takes a function or pad=, not both: let the function pad")

    def apply(self, sample: list[Any]) -> Any:
        if self.fn is not None:
            return self.fn(sample)
        if type(sample) is not list and (isinstance(sample, Mapping) or not hasattr(sample, "__len__")):
            raise BadPipe(
                f"collate() takes lists of samples, and got one sample, of type {type(sample).__name__}; "
                f"write .batch(n) before .collate()"
            )
        return collate(sample, "", self.pad)


def collate(samples: list[Any], path: str = "", pad: float | str | None = None) -> Any:
    """One sample of arrays out of many samples alike; an error names the field (`path`) and the samples that differ.

    `pad` says what becomes of arrays of unlike shapes, wherever they are.
    """
    first = samples[0]
    kind = type(first)
    if kind is tuple:
        if {*map(type, samples)} != {tuple}:
            alike.check_rows(samples, path)
        try:
            columns = list(zip(*samples, strict=True))
        except ValueError:
            _same_length(samples, path)
            raise
        return tuple([collate(list(column), f"{path}[{i}]", pad) for i, column in enumerate(columns)])
    if kind is int or kind is float or kind is bool:
        return exact.numbers(samples, path)
    if kind is str or kind is bytes:
        return samples if {*map(type, samples)} == {kind} else _texts(samples, kind, path)
    if kind is dict:
        return _dicts(samples, path, pad)
    if pad is not None:
        from headrace.ops.shape.ragged import to_one_shape

        made = to_one_shape(samples, pad, where(path))
        if made is not samples and pad == "nested":
            return made
        samples, first = made, made[0]
    np = sys.modules.get("numpy")
    if np is not None:
        if isinstance(first, np.ndarray):
            return _arrays(np, samples, path)
        if isinstance(first, np.generic):
            text = isinstance(first, np.character)
            return (
                _texts(samples, str if isinstance(first, str) else bytes, path)
                if text
                else exact.numbers(samples, path)
            )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        return _tensors(torch, samples, path)
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "Array") and isinstance(first, jax.Array):
        return _jax_arrays(jax, samples, path)
    return _containers(samples, first, kind, path, pad)


def _arrays(np: Any, samples: list[Any], path: str) -> Any:
    first = samples[0]
    shape, dtype = first.shape, first.dtype
    if dtype.hasobject:
        alike.check(samples, lambda sample: isinstance(sample, np.ndarray), path)
        warn_once(  # a model that is given a list fails far from here
            f"collate(){where(path)}: arrays of dtype object have no numbers to stack, so the batch is a list of "
            "them; give them a numeric dtype in a map() before (array.astype(...)), or give .collate(fn) a function"
        )
        return samples
    same, masked = True, False
    for i, array in enumerate(samples):
        if type(array) is not np.ndarray:
            if not isinstance(array, np.ndarray):
                raise alike.unlike(samples, i, path)
            masked = masked or isinstance(array, np.ma.MaskedArray)
        if array.shape != shape:
            raise _unlike(path, shape, i, array.shape)
        same = same and (array.dtype is dtype or array.dtype == dtype)
    if masked:
        return np.ma.stack(samples)
    if not same:
        return exact.arrays(np, samples, path)
    if not first.size or not shape:
        return np.stack(samples, out=place.empty((len(samples), *shape), dtype))
    return stacked(np, samples)


def stacked(np: Any, arrays: Sequence[Any]) -> Any:
    """Arrays that are alike, and not empty, on top of each other, in the memory that travels to the consumer."""
    whole = None if place.rows is None else place.rows.as_column(arrays)
    if whole is not None:
        return whole
    out, there = place.grown(arrays)
    if there < len(arrays):
        # (A fraction of what stack() costs.)
        np.concatenate(arrays[there:], out=out[there:].reshape(-1, *arrays[0].shape[1:]))
    return out


def _tensors(torch: Any, samples: list[Any], path: str) -> Any:
    first = samples[0]
    if {*map(type, samples)} != {type(first)}:
        alike.check(samples, lambda sample: isinstance(sample, torch.Tensor), path)
    if first.layout is not torch.strided or first.device.type != "cpu" or any(t.requires_grad for t in samples):
        return torch.stack(samples)
    for i, tensor in enumerate(samples):
        if tensor.shape != first.shape:
            raise _unlike(path, tuple(first.shape), i, tuple(tensor.shape))
    if any(tensor.dtype != first.dtype for tensor in samples):
        return exact.tensors(torch, samples, path)
    whole = None if place.rows is None else place.rows.as_column(samples)
    if whole is not None:
        return torch.from_numpy(whole)
    nbytes = first.numel() * first.element_size() * len(samples)
    if nbytes < place.worth:
        return torch.stack(samples)
    out = torch.frombuffer(place.empty((nbytes,), "u1"), dtype=first.dtype).view(len(samples), *first.shape)
    return torch.stack(samples, out=out)


def _unlike(path: str, first: tuple[int, ...], number: int, other: tuple[int, ...]) -> ValueError:
    return ValueError(
        f"cannot collate{where(path)}: sample 0 of the batch has shape {first}, sample {number} has shape {other}; "
        f"{UNLIKE}"
    )


def _jax_arrays(jax: Any, samples: list[Any], path: str) -> Any:
    for i, array in enumerate(samples):
        if not isinstance(array, jax.Array):
            raise alike.unlike(samples, i, path)
        if array.shape != samples[0].shape:
            raise _unlike(path, samples[0].shape, i, array.shape)
    return jax.numpy.stack(samples)


def _containers(samples: list[Any], first: object, kind: type, path: str, pad: float | str | None) -> Any:
    if isinstance(first, tuple) and hasattr(kind, "_fields"):
        alike.check_rows(samples, path)
        columns = zip(kind._fields, zip(*samples, strict=True), strict=True)
        return kind(*[collate(list(column), f"{path}.{name}", pad) for name, column in columns])
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        alike.check_objects(samples, path)
        fields = dataclasses.fields(first)
        made = {f.name: collate([getattr(s, f.name) for s in samples], f"{path}.{f.name}", pad) for f in fields}
        whole = dataclasses.replace(first, **{f.name: made[f.name] for f in fields if f.init})
        for field in fields:
            if not field.init:
                object.__setattr__(whole, field.name, made[field.name])
        return whole
    if isinstance(first, Mapping):
        return _dicts(samples, path, pad)
    if isinstance(first, list | tuple):
        alike.check_rows(samples, path)
        _same_length(samples, path)
        return [collate(list(column), f"{path}[{i}]", pad) for i, column in enumerate(zip(*samples, strict=True))]
    alike.check_objects(samples, path)
    return samples


def _texts(samples: list[Any], kind: type, path: str) -> list[Any]:
    alike.check(samples, lambda sample: isinstance(sample, kind), path)
    return samples


def _dicts(samples: list[Any], path: str, pad: float | str | None) -> dict[Any, Any]:
    first = samples[0]
    if {*map(type, samples)} != {dict}:
        alike.check(samples, lambda sample: isinstance(sample, Mapping), path)
    try:
        columns = {k: [sample[k] for sample in samples] for k in first}
    except KeyError:
        _same_keys(samples, path)
        raise
    if max(map(len, samples)) > len(first):
        _same_keys(samples, path)
    return {k: collate(column, f"{path}[{k!r}]", pad) for k, column in columns.items()}


def _same_keys(samples: list[Any], path: str) -> None:
    keys = samples[0].keys()
    for i, sample in enumerate(samples):
        if sample.keys() != keys:  # a key that only the first one lacks would be lost without a word
            poorer, richer = (i, sample), samples[0]
            if all(key in sample for key in keys):
                poorer, richer = (0, samples[0]), sample
            lacking = next(key for key in richer if key not in poorer[1])
            raise KeyError(
                f"cannot collate{where(path)}: sample {poorer[0]} of the batch has no key {lacking!r}, but "
                f"{', '.join(map(repr, poorer[1])) or 'none'}; give all samples the same keys in a map() before"
            ) from None


def _same_length(samples: list[Any], path: str) -> None:
    size = len(samples[0])
    for i, sample in enumerate(samples):
        if len(sample) != size:
            raise ValueError(
                f"cannot collate{where(path)}: sample 0 of the batch has {size} fields, sample {i} has {len(sample)}"
            ) from None
