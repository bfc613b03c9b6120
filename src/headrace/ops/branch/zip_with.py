"""Zip with: each sample joined with what another pipe, or a table, has under its key."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.op import Each, Here, Op, as_input, place
from headrace.tables.ops.columns import close_streams

FULL = (
    "Buffer reaches the upper limit, so reference key-data pair begins to be removed from buffer in FIFO order. "
    "Please consider increasing the buffer size."
)


@dataclass(frozen=True, slots=True)
class ZipWithIter(Op[Any, Any]):
    """`merge(sample, match)`; the second input is read until the match is found, and waits in a buffer till then."""

    key_fn: Callable[[Any], Any]
    ref_key_fn: Callable[[Any], Any] | None = None
    keep_key: bool = False
    buffer_size: int | None = 10000
    merge_fn: Callable[[Any, Any], Any] | None = None
    user = True
    length = as_input

    def __post_init__(self) -> None:
        if self.buffer_size is not None and self.buffer_size <= 0:
            raise BadOption("'buffer_size' is required to be either None or a positive integer.")

    def flow(self, samples: Iterator[Any], others: Iterator[Any], here: Here) -> Iterator[Any]:
        ref_key = self.ref_key_fn or self.key_fn
        waiting: dict[Any, Any] = {}
        warned = False
        try:
            here.rest()
            for number, sample in enumerate(samples, here.emitted):
                place.at(here, number)
                key = self.key_fn(sample)
                while key not in waiting:
                    try:
                        other = next(others)
                    except StopIteration:
                        raise BufferError(
                            f"No matching key can be found from reference DataPipe for the data {sample}. "
                            "Please consider increasing the buffer size."
                        ) from None
                    other_key = ref_key(other)
                    if other_key in waiting:
                        raise ValueError(f"Duplicate key is found in reference DataPipe: {other_key!r}")
                    if self.buffer_size is not None and len(waiting) > self.buffer_size:
                        if not warned:
                            warnings.warn(FULL, stacklevel=2)
                            warned = True
                        close_streams(waiting.pop(next(iter(waiting))))
                    waiting[other_key] = other
                match = waiting.pop(key)
                merged = (sample, match) if self.merge_fn is None else self.merge_fn(sample, match)
                yield (key, merged) if self.keep_key else merged
                if not waiting:
                    here.rest()
        finally:
            for left in waiting.values():
                close_streams(left)


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
