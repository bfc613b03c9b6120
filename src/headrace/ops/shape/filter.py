"""Filter: keep the samples for which a function says so."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.op import Flat

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filter(Flat[T, T]):
    """Keep the samples for which `fn` is true."""

    fn: Callable[[T], bool]
    user = True

    def spread(self, sample: T) -> Iterator[T]:
        if self.fn(sample):
            yield sample
