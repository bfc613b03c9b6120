"""Windows: ops that turn each window of consecutive samples into a list of rows or batches, by itself.

Over random access a window is a run of positions of the input, with whatever filters have left of the samples there. So
a window depends on neither workers nor ranks, and each can be made alone. Of a stream it is the next `window` samples.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from typing import Any, TypeVar

from headrace.op import Here, Indexed, InputCursor, Op, place
from headrace.plan.balance import StepPlan
from headrace.plan.packing import Packing
from headrace.plan.seed import key

Out = TypeVar("Out")
Take = Callable[[Any, int], Any]


class WindowOp(Op[Any, list[Out]]):
    """Write `plan`, `taker` and `make`."""

    __slots__ = ()
    quiet = True
    gathers = True
    by_window = True
    plan: Packing | StepPlan

    @property
    def window(self) -> int:
        """Samples of a stream, or positions of random access, that are taken together."""
        return self.plan.window

    @abstractmethod
    def taker(self) -> Take:
        """A function from a sample and its position to what `make` takes. It raises for a sample that cannot be used:
        then only that sample is left out or named in the error, not its whole window."""

    @abstractmethod
    def make(self, samples: list[Any], seed: int, last: bool, here: Here) -> list[Out]:
        """The outputs of one window. `seed` belongs to this window; `last` says that no window comes behind it."""

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        size, take = self.window, self.taker()

        def get(position: int) -> list[Out]:
            stop = min((position + 1) * size, inner.length)
            lists = gather_lists(inner, range(position * size, stop), here, take)
            place.at(here, position)
            seed = key(here.seed, "window", position)
            return self.make(list(chain.from_iterable(lists)), seed, stop == inner.length, here)

        return Indexed(-(-inner.length // size), get)

    def flow(self, samples: InputCursor[Any], here: Here) -> Iterator[list[Out]]:
        gathered = samples.gathered()
        if gathered is not None:
            found = self.index((gathered,), here)
            assert found is not None
            for position in range(here.emitted, found.length):
                yield found.get(position)
            return
        number, take = here.emitted, self.taker()
        while window := list(islice(samples, self.window)):
            place.at(here, number)
            first = number * self.window
            samples_taken = _taken(window, take, range(first, first + len(window)), here)
            place.at(here, number)
            # (A stream that ends with a full window has no last one: looking ahead would mean to hold a sample.)
            seed = key(here.seed, "window", number)
            yield self.make(samples_taken, seed, len(window) < self.window, here)
            number += 1

    @property
    def resume(self) -> str:
        return "at most the window at hand"


TOGETHER = 64
"""Samples that are asked for in one call, where an op makes many at once."""


def gather_lists(inner: Indexed, positions: range, here: Here, take: Take | None = None) -> list[list[Any]]:
    """The list of samples at each of these positions, each sample as `take(sample, position)` makes it."""
    lists: list[list[Any]] = []
    ahead = inner.ahead
    many = None if here.lenient else inner.many  # what is left out has to be counted one by one
    if many is not None:
        try:
            for start in range(0, len(positions), TOGETHER):
                if ahead is not None:
                    ahead(positions[start : start + TOGETHER])
                lists += many(positions[start : start + TOGETHER])
            if take is not None:
                lists = [[take(one, at) for one in some] for at, some in zip(positions, lists, strict=True)]
            return lists
        except Exception:
            lists.clear()  # once more, each by itself: so the error names the sample
    for number, at in enumerate(positions):
        if ahead is not None and number % TOGETHER == 0:
            ahead(positions[number : number + TOGETHER])
        try:
            made = inner.get(at)
        except Exception as error:
            here.spot.skip(here.spot.here or here, at, error)
            continue
        lists.append(made if take is None else _taken(made, take, repeat(at, len(made)), here))
    return lists


def _taken(samples: list[Any], take: Take, positions: Iterable[int], here: Here) -> list[Any]:
    """`take` of each sample; one for which it raises is left out, if the user said `on_error="skip"`."""
    kept = []
    for sample, position in zip(samples, positions, strict=True):
        try:
            kept.append(take(sample, position))
        except Exception as error:
            here.spot.skip(here, position, error)
    return kept
