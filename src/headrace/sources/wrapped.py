"""Wrapped: data in memory with the rules of DataPipes (IterableWrapper, SequenceWrapper, samplers).

Every reader gets its own deep copy of a sample, so that changing it in place changes nothing for the next epoch or
another branch. Data with a length and positions has random access; anything else is a stream. An iterator can be read
once only: reading it again is an error, not an empty epoch.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from headrace.errors import BadPipe
from headrace.op import Here, Source, place
from headrace.ops.copies import IMMUTABLE
from headrace.sources.memory import known_length

T = TypeVar("T")
NOT_COPIED = (
    "The input iterable can not be deepcopied, please be aware of in-place modification would affect source data."
)


class ReadFlag:
    """Whether an iterator has been read. In another process it arrives unread."""

    def __init__(self) -> None:
        self.taken = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (ReadFlag, ())


@dataclass(frozen=True, slots=True, eq=False)
class WrappedSequence(Source[T]):
    """A list, an array, a range, a mapping: any position or key at once."""

    data: Any
    deepcopy: bool = True
    user = True
    verb = "wrapped"

    def size(self) -> int:
        return len(self.data)

    def get(self, position: int) -> T:
        sample = self.data[position]
        return sample if type(sample) in IMMUTABLE or not self.deepcopy else copied(sample)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False)
class WrappedIterable(Source[T]):
    """Anything that can be iterated, or a function that returns it, called anew each time."""

    data: Any
    deepcopy: bool = True
    once: ReadFlag = field(default_factory=ReadFlag, repr=False)
    user = True
    verb = "wrapped"
    divides = True

    def flow(self, here: Here) -> Iterator[T]:
        data = self.data
        samples = iter(data if hasattr(data, "__iter__") or not callable(data) else data())
        if samples is data:
            if self.once.taken:
                raise BadPipe(
                    "IterableWrapper holds an iterator, and it has been read already; "
                    "give it a list, or a function that returns a fresh iterator"
                )
            self.once.taken = True
        for position, sample in enumerate(islice(samples, here.strand, None, here.strands)):
            place.at(here, position)
            yield copied(sample) if self.deepcopy and samples is not data else sample

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return known_length(self.data)


@dataclass(frozen=True, slots=True, eq=False)
class Sampled(Source[int]):
    """Positions of `data` in the order of `sampler(*args, data_source=data, **kwargs)`; None: 0, 1, 2, ..."""

    data: Any
    sampler: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    user = True
    verb = "sampler"

    def flow(self, here: Here) -> Iterator[int]:
        for position, drawn in enumerate(self._made()):
            place.at(here, position)
            yield drawn

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return len(self._made())

    def _made(self) -> Any:
        if self.sampler is None:
            return range(len(self.data))
        return self.sampler(*self.args, data_source=self.data, **dict(self.kwargs))


def copied(sample: object) -> Any:
    """A deep copy of a sample; the sample itself, with a warning, if it cannot be copied."""
    if type(sample) in IMMUTABLE:
        return sample
    try:
        return copy.deepcopy(sample)
    except Exception:
        warnings.warn(NOT_COPIED, stacklevel=3)
        return sample


def has_positions(data: object) -> bool:
    """Whether `data[i]` for i below `len(data)` is the same as iterating it."""
    if isinstance(data, Sequence):
        return True
    if isinstance(data, Iterator) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return False
    if hasattr(data, "strides") or hasattr(data, "stride"):  # arrays and tensors
        return True
    # An object without __iter__ is iterated by positions anyway.
    return not hasattr(data, "__iter__")
