"""In-memory cache: everything before it runs once per process; later epochs get the same samples from memory.

What the cache holds is the stream of epoch 0, whichever epoch runs first: a worker that starts late, or a run that is
resumed, fills its cache with the same samples as every other process. Behind a shard point, where the op runs in the
consumer on what the workers deliver, nothing is cached.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.nested import data_bytes, parts
from headrace.op import Here, InputCursor, Op, as_input, is_count
from headrace.ops.copies import private_copy

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class InMemoryCache(Op[T, T]):
    """Samples are kept once all have been read, if they take at most `size` megabytes (None: any number)."""

    size: int | None = None
    full: dict[Any, list[Any]] = field(default_factory=dict, repr=False)
    """The samples that this process holds, by what they depend on. They are not sent to other processes."""
    refused: set[Any] = field(default_factory=set, repr=False)
    accepts = is_count
    length = as_input

    def __post_init__(self) -> None:
        if self.size is not None and not self.size > 0:
            raise BadOption(f"in_memory_cache(size=) needs a number of megabytes > 0, not {self.size!r}")

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        first = samples.reopened(epoch=0) if isinstance(samples, InputCursor) else None
        if first is None:
            return samples
        return self._samples(first, here)

    def _samples(self, samples: InputCursor[T], here: Here) -> Iterator[T]:
        about = samples.origin()
        number = here.note or 0
        if about in self.full:
            for position, sample in enumerate(islice(self.full[about], number, None), number):
                here.rest(position)
                yield private_copy(sample)
            return
        kept: list[Any] | None = [] if about not in self.refused else None
        taken = 0
        for position, sample in enumerate(samples):
            if kept is not None:
                kept.append(private_copy(sample))
                taken += weight(sample) if self.size is not None else 0
                if self.size is not None and taken > self.size * 2**20:
                    kept = None
                    self._refuse(about)
            if position >= number:
                here.rest(position)
                yield sample
        if kept is not None:
            self.full[about] = kept

    def _refuse(self, about: object) -> None:
        if about not in self.refused:
            self.refused.add(about)
            warnings.warn(
                f"in_memory_cache: the samples take more than size={self.size} megabytes; they are read in every epoch",
                stacklevel=2,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return InMemoryCache, (self.size,)

    def describe(self) -> str:
        return f"in_memory_cache(size={self.size})"

    def identity(self) -> tuple[Any, ...]:
        return ("in_memory_cache",)


def weight(sample: object) -> int:
    """About how many bytes a sample takes."""
    size = sys.getsizeof(sample)
    size += sum(map(weight, parts(sample))) + (sum(map(weight, sample)) if isinstance(sample, Mapping) else 0)
    return max(size, data_bytes(sample) or 0)
