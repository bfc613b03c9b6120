"""Verbs between streams and tables, and the pipe whose samples are asked for by key."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.pipe.verbs.callables import function
from headrace.pipe.verbs.growing import grow

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe


class LookupVerbs:
    """What a Pipe can do by key."""

    __slots__ = ()

    def to_iter_datapipe(self, indices: Sequence[Any] | None = None) -> "Pipe[Any]":
        """The samples at `indices`, or at 0, 1, 2, ..., one after the other; needs random access."""
        from headrace.ops.order.pick import Pick

        if indices is None:
            return cast("Pipe[Any]", self)
        return grow(self, Pick(indices if isinstance(indices, Sequence) else list(cast(Iterable[Any], indices))))

    def to_map_datapipe(self, key_value_fn: Callable[[Any], Any] | None = None) -> "Pipe[Any]":
        """A table of (key, value) samples, read whole when the first is asked for: `pipe[key]`."""
        from headrace.pipe.verbs.keyed import Keyed
        from headrace.sources.table import KeyedTable

        source = cast("Pipe[Any]", self)
        return Keyed(KeyedTable(source, None if key_value_fn is None else function(key_value_fn)))
