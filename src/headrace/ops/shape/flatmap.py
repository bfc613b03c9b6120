"""Flatmap: a function that makes any number of samples out of one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.op import Flat

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class Flatmap(Flat[In, Out]):
    """Emit every element of `fn(sample)`."""

    fn: Callable[[In], Iterable[Out]]
    user = True

    def spread(self, sample: In) -> Iterator[Out]:
        yield from self.fn(sample)
