"""Verbs for the fields of a sample."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipe.verbs.callables import Columns
from headrace.pipe.verbs.growing import grow

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe


class ColumnVerbs:
    """What a Pipe can do with fields."""

    __slots__ = ()

    def drop(self, indices: Columns) -> "Pipe[Any]":
        """Samples without the fields `indices` (positions or keys)."""
        from headrace.ops.shape.fields import Drop

        return grow(self, Drop(indices))

    def slice(self, index: Columns, stop: int | None = None, step: int | None = None) -> "Pipe[Any]":
        """Only the fields `index:stop:step`, or those that a list names."""
        from headrace.ops.shape.fields import Slice

        return grow(self, Slice(index, stop, step))

    def flatten(self, indices: Columns = None) -> "Pipe[Any]":
        """The elements of nested fields in the place of the fields."""
        from headrace.ops.shape.fields import Flatten

        return grow(self, Flatten(indices))

    def add_index(self, index_name: str = "index") -> "Pipe[dict[Any, Any]]":
        """Dicts with their number under `index_name`."""
        from headrace.ops.shape.enumerate import AddIndex

        return grow(self, AddIndex(index_name))

    def rows2columnar(self, column_names: Sequence[Any] | None = None) -> "Pipe[dict[Any, list[Any]]]":
        """Each batch of rows as one dict of lists."""
        from headrace.ops.shape.rows2columnar import Rows2Columnar

        return grow(self, Rows2Columnar(tuple(column_names or ())))
