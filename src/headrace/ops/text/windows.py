"""Windows: ops that turn a window of consecutive samples into a list of something, each window by itself.

Over random access a window is a run of positions, whatever filters have left of the samples there: so it depends on
neither workers nor ranks, and any of them can be made by itself. Of a stream it is the next so many samples.
"""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, TypeVar

from headrace.op import Here, Indexed, InputCursor, Op, place
from headrace.plan.seed import key

Out = TypeVar("Out")


class WindowOp(Op[Any, list[Out]]):
    """Write `window` and `make`."""

    __slots__ = ()
    quiet = True
    gathers = True
    by_window = True

    @property
    @abstractmethod
    def window(self) -> int:
        """Samples, or positions of the input, that are taken together."""

    @abstractmethod
    def make(self, samples: list[Any], seed: int, last: bool) -> list[Out]:
        """What becomes of a window; `seed` is its own. `last`: there is none behind it."""

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        size = self.window

        def get(position: int) -> list[Out]:
            stop = min((position + 1) * size, inner.length)
            samples = list(chain.from_iterable(gather_lists(inner, range(position * size, stop), here)))
            place.at(here, position)
            return self.make(samples, key(here.seed, "window", position), stop == inner.length)

        return Indexed(-(-inner.length // size), get)

    def flow(self, samples: InputCursor[Any], here: Here) -> Iterator[list[Out]]:
        gathered = samples.gathered()
        if gathered is not None:
            found = self.index((gathered,), here)
            assert found is not None
            for position in range(here.emitted, found.length):
                yield found.get(position)
            return
        number = here.emitted
        while window := list(islice(samples, self.window)):
            place.at(here, number)
            # (A stream that ends with a whole window has no last one: to look ahead would be to hold a sample.)
            yield self.make(window, key(here.seed, "window", number), len(window) < self.window)
            number += 1

    @property
    def resume(self) -> str:
        return "at most the window at hand"


TOGETHER = 64
"""Samples that are made in one call, where an op takes many at once."""


def gather_lists(inner: Indexed, positions: range, here: Here) -> list[list[Any]]:
    """The lists at these positions."""
    lists: list[list[Any]] = []
    many = None if here.lenient else inner.many  # what is left out has to be counted one by one
    if many is not None:
        try:
            for start in range(0, len(positions), TOGETHER):
                lists += many(positions[start : start + TOGETHER])
            return lists
        except Exception:
            lists.clear()  # once more, each by itself: so the error names the sample
    for at in positions:
        try:
            lists.append(inner.get(at))
        except Exception as error:
            here.spot.skip(here.spot.here or here, at, error)
    return lists
