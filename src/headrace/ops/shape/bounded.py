"""Batch, concat and zip for tables: a position outside is an error, as it is for a list."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Indexed
from headrace.ops.branch.concat import Concat
from headrace.ops.branch.zip import Zip
from headrace.ops.shape.batch import Batch


@dataclass(frozen=True, slots=True)
class BoundedBatch(Batch[Any]):
    """Batches of a table."""

    verb = "batch"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return _checked(Batch.index(self, inputs, here), "Index {} is out of bound.")


@dataclass(frozen=True, slots=True)
class BoundedConcat(Concat[Any]):
    """Tables one after the other."""

    verb = "concat"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        return _checked(Concat.index(self, inputs, here), "Index {} is out of range.")


@dataclass(frozen=True, slots=True)
class BoundedZip(Zip):
    """Tables side by side, by any key that all of them have."""

    verb = "zip"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        def get(position: int) -> tuple[Any, ...]:
            fields = []
            for number, table in enumerate(inputs):
                try:
                    fields.append(table.get(position))
                except (IndexError, KeyError) as error:
                    raise IndexError(
                        f"Index {position} is out of range for one of the input MapDataPipes (number {number})."
                    ) from error
            return tuple(fields)

        return Indexed(min(i.length for i in inputs), get)


def _checked(indexed: Indexed | None, text: str) -> Indexed | None:
    if indexed is None:
        return None
    fetch: Callable[[int], Any] = indexed.get
    size = indexed.length

    def get(position: int) -> Any:
        if not 0 <= position < size:
            raise IndexError(text.format(position))
        return fetch(position)

    return Indexed(size, get)
