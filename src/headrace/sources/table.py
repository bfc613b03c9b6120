"""Tables of the samples of a pipe: by key, all read when the first one is asked for, or by position, each made once in
a process.

The samples that are kept by position are those of epoch 0, whichever epoch asks first, so that all processes keep the
same ones. Functions before it that are random should draw from `headrace.rng()`.
"""

import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import BadOption
from headrace.op import Source
from headrace.ops.copies import private_copy
from headrace.ops.shape.in_memory_cache import weight
from headrace.sources.access import RandomAccess


@dataclass(frozen=True, slots=True, eq=False)
class KeyedTable(Source[Any]):
    """The values of a pipe of (key, value) pairs; `pair` makes such a pair out of a sample."""

    source: Iterable[Any]
    pair: Callable[[Any], Any] | None = None
    read: list[dict[Any, Any]] = field(default_factory=list, repr=False)
    """The table, once this process has read it. It is not sent to other processes."""
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


class SampleCache:
    """The samples that this process has made. In another process it arrives empty."""

    def __init__(self) -> None:
        self.samples: dict[tuple[str, ...], dict[Any, Any]] = {}
        """By position, for each pipe that they were made by: a graph may be divided anew while it is in use."""
        self.bytes = 0
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (SampleCache, ())


@dataclass(frozen=True, slots=True, eq=False)
class CachedTable(Source[Any]):
    """Samples stay in memory, at most `limit` megabytes of them (None: all)."""

    pipe: Any
    limit: int | None = None
    kept: SampleCache = field(default_factory=SampleCache, repr=False)
    access: RandomAccess = field(init=False, repr=False)
    samples: dict[Any, Any] = field(init=False, repr=False)
    """Those that were made by this very pipe."""
    user = True
    verb = "in_memory_cache"

    def __post_init__(self) -> None:
        if self.limit is not None and not self.limit > 0:
            raise BadOption(f"in_memory_cache(size=) needs a number of megabytes > 0, not {self.limit!r}")
        object.__setattr__(self, "access", RandomAccess(self.pipe))
        object.__setattr__(self, "samples", self.kept.samples.setdefault(tuple(self.pipe.fingerprint()), {}))

    def size(self) -> int:
        return self.access.length

    def get(self, position: Any) -> Any:
        kept, samples = self.kept, self.samples
        if position not in samples:
            sample = self.access.get(position)
            if self.limit is not None:
                size = weight(sample)
                with kept.lock:
                    if kept.bytes + size > self.limit * 2**20:
                        return sample
                    kept.bytes += size
            samples[position] = sample
        return private_copy(samples[position])

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedTable, (self.pipe, self.limit, self.kept)

    def describe(self) -> str:
        return f"in_memory_cache(size={self.limit}) of {self.pipe!r}"

    def identity(self) -> tuple[Any, ...]:
        return ("in_memory_cache", *self.pipe.fingerprint())
