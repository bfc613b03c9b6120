"""Map: a function of the user's, on each sample."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.op import Each

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class Map(Each[In, Out]):
    """Apply `fn` to every sample."""

    fn: Callable[[In], Out]
    user = True

    def apply(self, sample: In) -> Out:
        return self.fn(sample)
