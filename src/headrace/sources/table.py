"""KeyedTable: the samples of a pipe by key, read whole when the first is asked for."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.op import Source


@dataclass(frozen=True, slots=True, eq=False)
class KeyedTable(Source[Any]):
    """The values of a pipe of (key, value) pairs; `pair` makes such a pair out of a sample."""

    source: Iterable[Any]
    pair: Callable[[Any], Any] | None = None
    read: list[dict[Any, Any]] = field(default_factory=list, repr=False)
    """The table, once this process has read it: it does not travel."""
    user = True

    def size(self) -> int:
        return len(self.table())

    def get(self, position: Any) -> Any:
        try:
            return self.table()[position]
        except KeyError:
            raise IndexError(f"Index {position} is invalid for IterToMapConverter.") from None

    def table(self) -> dict[Any, Any]:
        if not self.read:
            table: dict[Any, Any] = {}
            for sample in self.source:
                key, value = _pair(sample if self.pair is None else self.pair(sample))
                if key in table:
                    warnings.warn(f"Found duplicate key {key}. Please check your `key_value_fn`", stacklevel=2)
                table[key] = value
            self.read.append(table)
        return self.read[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyedTable, (self.source, self.pair)

    def describe(self) -> str:
        return "to_map_datapipe()"

    def identity(self) -> tuple[Any, ...]:
        return ("to_map_datapipe",)


def _pair(sample: Any) -> tuple[Any, Any]:
    try:
        size = len(sample)
    except TypeError:
        raise TypeError(f"Cannot convert dictionary update element {type(sample)} ({sample}) to a sequence") from None
    if size != 2:
        raise ValueError(f"dictionary update sequence element has length {size}, 2 is required")
    key, value = sample
    return key, value
