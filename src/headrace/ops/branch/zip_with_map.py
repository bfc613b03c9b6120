"""Zip with map: each sample joined with what a table has under its key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.op import Each


@dataclass(frozen=True, slots=True, eq=False)
class ZipWithMap(Each[Any, Any]):
    """`merge(sample, table[key])`."""

    table: Any
    key_fn: Callable[[Any], Any]
    merge_fn: Callable[[Any, Any], Any] | None = None
    keep_key: bool = False
    user = True

    def apply(self, sample: object) -> Any:
        key = self.key_fn(sample)
        try:
            match = self.table[key]
        except (KeyError, IndexError):
            raise KeyError(
                f"key_fn maps {sample} to {key}, which is not a valid key in the given MapDataPipe."
            ) from None
        merged = (sample, match) if self.merge_fn is None else self.merge_fn(sample, match)
        return (key, merged) if self.keep_key else merged
