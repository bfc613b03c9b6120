"""Tensors and arrays of whole batches: micro-batches joined to one step, and arrays as tensors for users of torch.

torch is used only where the user's process has loaded it. Workers collate into numpy arrays unless the samples are
tensors already, so they need no torch; an array becomes a tensor over the same memory in the user's process.

With a `batch_sampler`, the user's `collate_fn` is called for one micro-batch at a time, so that a function that pads
can give each micro-batch a shape of its own. The results are joined along their first extent; an error says what cannot
be joined.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.doors.replicas.tree import mapped, ordered_as
from headrace.errors import BadOption


class AsTensors:
    """Converts batches to what torch's default_collate makes: every array a tensor, every plain tuple a list.

    Whether it does is decided at the first batch: if torch is loaded by then.
    """

    _convert: bool | None = None

    def __call__(self, batch: object) -> Any:
        if self._convert is None:
            self._convert = "torch" in sys.modules
        return mapped(batch, _tensor, list) if self._convert else batch


def _tensor(leaf: object) -> Any:
    import numpy as np
    import torch

    if not isinstance(leaf, np.ndarray):
        return leaf
    try:
        # torch has no tensors that cannot be written to.
        return torch.from_numpy(leaf if leaf.flags.writeable else leaf.copy())
    except TypeError:
        return leaf  # strings, dates: torch has no such tensors


CURE = (
    "cannot be joined to one step. Return tensors, arrays or lists that agree in all but their first extent (pad every "
    "micro-batch to one shape), in dicts, tuples, dataclasses or a class with registerCustomArgParser()"
)


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatches:
    """Makes a step from lists of sample numbers, one list a micro-batch."""

    dataset: Any
    collate_fn: Callable[[list[Any]], Any]

    def __call__(self, numbers: list[list[Any]]) -> Any:
        return concatenated([self.collate_fn([self.dataset[n] for n in part]) for part in numbers])


def concatenated(batches: list[Any]) -> Any:
    """Several batches of one structure as one: their leaves are joined, in order, along the first extent."""
    if len(batches) == 1:
        return batches[0]
    columns = [_leaves(ordered_as(batch, batches[-1])) for batch in batches]
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(str(len(column)) for column in columns)
        raise BadOption(f"collate_fn gave micro-batches of different forms ({counts} arrays), which {CURE}")
    leaves = iter([_joined(list(parts)) for parts in zip(*columns, strict=True)])
    return mapped(batches[-1], lambda _: next(leaves))


def _leaves(batch: object) -> list[Any]:
    found: list[Any] = []
    mapped(batch, found.append)
    return found


def _joined(parts: list[Any]) -> Any:
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    shapes = [tuple(getattr(part, "shape", ())) for part in parts]
    if () in shapes:
        kind = type(parts[shapes.index(())]).__name__
        raise BadOption(f"collate_fn gave micro-batches with a {kind} that has no first extent, which {CURE}")
    if len({shape[1:] for shape in shapes}) > 1:
        different = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise BadOption(f"collate_fn gave micro-batches of the shapes {different}, which {CURE}")
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat(parts)
    import numpy as np

    return np.concatenate(parts)
