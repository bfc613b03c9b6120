"""Micro-batches joined to one step: what a `batch_sampler` chose and a `collate_fn` of the user's has put together.

`collate_fn` sees one micro-batch at a time, so that one which pads gives each micro-batch the shape that it means; the
results are joined along their first extent. What cannot be joined is an error that says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.doors.replicas.tensors import concatenate
from headrace.doors.replicas.tree import mapped
from headrace.errors import BadOption

CURE = (
    "cannot be joined to one step. Return tensors, arrays or lists that agree in all but their first extent (pad every "
    "micro-batch to one shape), in dicts, tuples, dataclasses or a class with registerCustomArgParser()"
)


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatches:
    """Lists of numbers, one a micro-batch, to one step of the samples that they name."""

    dataset: Any
    collate_fn: Callable[[list[Any]], Any]

    def __call__(self, numbers: list[list[Any]]) -> Any:
        return concatenated([self.collate_fn([self.dataset[n] for n in part]) for part in numbers])


def concatenated(batches: list[Any]) -> Any:
    """Several batches of one form as one: each leaf is joined with its likes along the first extent."""
    if len(batches) == 1:
        return batches[0]
    columns = [_leaves(batch) for batch in batches]
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
        told = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise BadOption(f"collate_fn gave micro-batches of the shapes {told}, which {CURE}")
    return concatenate(parts)
