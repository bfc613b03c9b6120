"""Batches of columns: rows of a table, taken many at once.

`batch()` over a columnar pipe is two ops. ColumnBatch is a `batch` whose groups are tables: the engine, or its own
flow, takes all rows of a batch in one gather. AsColumns gives each table the form that the user wants. Both ways give
the same batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Each, Here, Indexed, is_count, place
from headrace.ops.shape.batch import Batch


@dataclass(frozen=True, slots=True)
class ColumnBatch(Batch[Any]):
    """Group `size` consecutive rows into a table."""

    accepts = is_count
    verb = "batch"

    def flow(self, samples: Any, here: Here) -> Iterator[Any]:
        indexed = samples.indexed()
        if indexed is None or indexed.take is None:
            raise BadPipe(
                "batches of columns need rows of a table: put batch() right after the frame, shuffle() or select()"
            )
        first = here.strand * self.size if here.note is None else here.note
        stop = indexed.length - self.size + 1 if self.drop_last else indexed.length
        step = here.strands * self.size
        for number, position in enumerate(range(first, stop, step), here.emitted):
            place.at(here, number)
            table = self._take(indexed, position)
            here.rest(position + step)
            yield table

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        return Indexed(self._count(inner.length), lambda position: self._take(inner, position * self.size))

    def _take(self, indexed: Indexed, first: int) -> Any:
        """The table of the batch that begins at this row."""
        import numpy as np

        assert indexed.take is not None
        return indexed.take(np.arange(first, min(first + self.size, indexed.length), dtype=np.int64), None)


@dataclass(frozen=True, slots=True)
class AsColumns(Each[Any, Any]):
    """Give each table the form `as_` (see `headrace.tables.convert.forms`)."""

    as_: str = "numpy"
    takes_columns = True
    """Takes the table of a whole batch, not a list of rows."""
    verb = "columns"

    def __post_init__(self) -> None:
        from headrace.tables.convert.forms import check_form

        check_form(self.as_, "batch")

    @property
    def _form(self) -> str:
        return "numpy" if self.as_ == "jax" else self.as_

    def apply(self, sample: Any) -> Any:
        from headrace.tables.convert.forms import deliver

        return deliver(sample, self._form)

    def depart(self, sample: Any) -> Any:
        from headrace.tables.convert.forms import depart

        return self.apply(sample) if place.allocate is None else depart(sample, self._form)

    def identity(self) -> tuple[Any, ...]:
        return ("columns",)  # the form changes no order: a snapshot loads with another


@dataclass(frozen=True, slots=True)
class AsJax(Each[Any, Any]):
    """A dict of numpy arrays as jax arrays: here, because jax must not be started in a forked worker."""

    consumer = True
    verb = "jax"

    def apply(self, sample: object) -> Any:
        from headrace.tables.convert.forms import deliver
        from headrace.tables.convert.frames import table_of

        return deliver(table_of(sample), "jax")  # type: ignore[arg-type]
