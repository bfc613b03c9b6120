"""Cached table: the samples of a pipe with random access, each made once per process.

What is kept is the pipe's output in epoch 0, whatever epoch asks first, so that all processes keep the same. Functions
before the cache that need chance draw it from `headrace.rng()`.
"""

import threading
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import BadOption
from headrace.op import Source
from headrace.ops.copies import own
from headrace.ops.shape.in_memory_cache import weight
from headrace.sources.access import Access


class Kept:
    """What has been made in this process; travels empty."""

    def __init__(self) -> None:
        self.samples: dict[Any, Any] = {}
        self.bytes = 0
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Kept, ())


@dataclass(frozen=True, slots=True, eq=False)
class CachedTable(Source[Any]):
    """Samples stay in memory, at most `limit` megabytes of them (None: all)."""

    pipe: Any
    limit: int | None = None
    kept: Kept = field(default_factory=Kept, repr=False)
    access: Access = field(init=False, repr=False)
    user = True
    verb = "in_memory_cache"

    def __post_init__(self) -> None:
        if self.limit is not None and not self.limit > 0:
            raise BadOption(f"in_memory_cache(size=) needs a number of megabytes > 0, not {self.limit!r}")
        object.__setattr__(self, "access", Access(self.pipe))

    def size(self) -> int:
        return self.access.length

    def get(self, position: Any) -> Any:
        kept = self.kept
        if position not in kept.samples:
            sample = self.access.get(position)
            if self.limit is not None:
                size = weight(sample)
                with kept.lock:
                    if kept.bytes + size > self.limit * 2**20:
                        return sample
                    kept.bytes += size
            kept.samples[position] = sample
        return own(kept.samples[position])

    def describe(self) -> str:
        return f"in_memory_cache(size={self.limit}) of {self.pipe!r}"

    def identity(self) -> tuple[Any, ...]:
        return ("in_memory_cache", *self.pipe.fingerprint())
